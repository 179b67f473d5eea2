"""What a transition leaves if a step fails, an answer is lost, or another transition is faster.

tests/simulation does this at every call. Here each case is once, to show its result.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Task
from legacy_queue.ports import Changed
from legacy_queue.services.process import ledger
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.tasks import Tasks
from tests.domain.sample_tasks import ALICE, BOB, CLAIM_TIMEOUT, HOUR, MINUTE, task_body
from tests.services.artifact_calls import create
from tests.services.fake_ports import FaultAt
from tests.services.harness import HIGH, QUEUE, Harness


@pytest.mark.parametrize("error", [ServiceUnavailable("storage is away"), ValueError("a defect")], ids=repr)
def test_a_call_succeeds_if_only_a_step_after_its_write_fails_and_this_step_is_repeated_later(
    harness: Harness, error: Exception
) -> None:
    task_id, server = slugid(), harness.replica(FaultAt(0, of="put", before=error))
    assert server.tasks.create(task_id, task_body()).state == "pending"
    assert harness.messages() == []
    harness.do_work(MINUTE, server)
    assert harness.receive_one().task_id == task_id


def test_a_create_task_succeeds_though_the_clock_is_moved_during_it(harness: Harness) -> None:
    task_id, server = slugid(), harness.replica(FaultAt(0, of="join", after=lambda: harness.clock.jump(HOUR)))
    assert server.tasks.create(task_id, task_body(taskGroupId=slugid())).state == "pending"


def test_a_repeated_report_offers_the_pending_retry_again(harness: Harness) -> None:
    task_id = harness.claimed()
    first = harness.shut_down(task_id)
    assert harness.shut_down(task_id) == first
    assert [run_id for run_id, _ in harness.offered_runs()] == [1, 1]


@pytest.mark.parametrize("is_rerun", [False, True])
def test_a_report_completed_whose_answer_was_lost_has_all_its_effects(
    harness: Harness, is_rerun: bool
) -> None:
    """They follow within a minute. If the task was rerun meanwhile, they come immediately."""
    task_id = harness.claimed()
    waiting = harness.create(dependencies=[task_id])
    harness.do_work(MINUTE)  # after this, no effect of these calls is missing

    def rerun() -> None:
        harness.services.tasks.rerun(task_id)
        raise Changed

    lost = rerun if is_rerun else ServiceUnavailable("no answer")
    server = harness.replica(FaultAt(0, of="replace", after=lost))
    with suppress(ServiceUnavailable):
        harness.complete(task_id, services=server)
    harness.do_work(MINUTE * (not is_rerun), server)
    assert harness.states(waiting) == ["pending"]
    assert ("task-completed", task_id, 0) in harness.events()


def overtaken(harness: Harness, by: Callable[[], object]) -> Services:
    return harness.replica(FaultAt(0, of="replace", before=by))


def test_a_claim_whose_answer_was_lost_is_granted(harness: Harness) -> None:
    """Azure's SDK repeats the write and finds a newer ETag, which is the one of its own first try."""
    task_id = harness.create()
    server = harness.replica(FaultAt(0, of="replace", after=Changed()))
    assert harness.claim(harness.receive_one(), services=server)["runId"] == 0
    assert [message.lease for message in harness.messages()] == [harness.task(task_id).held]


def test_a_claim_holds_its_message_though_the_pending_task_was_changed_during_it(harness: Harness) -> None:
    task_id = harness.create()

    def there_and_back() -> None:
        for old, new in (("lowest", "high"), ("high", "lowest")):
            harness.services.tasks.change_priority(task_id, old, new)

    harness.claim(harness.receive_one(), services=overtaken(harness, there_and_back))
    assert (1, CLAIM_TIMEOUT) in harness.offered_runs()
    assert harness.states(task_id) == ["running by alice"]


def test_a_reclaim_holds_its_message_though_an_artifact_was_created_during_it(harness: Harness) -> None:
    task_id = harness.claimed()
    overtaken(harness, lambda: create(harness, task_id, "blob")).claims.reclaim(task_id, 0)
    assert harness.task(task_id).held in [message.lease for message in harness.messages()]
    assert {*harness.offered_runs()} == {(1, CLAIM_TIMEOUT)}


def test_reporting_a_worker_shutdown_is_a_conflict_if_the_task_was_canceled_during_it(
    harness: Harness,
) -> None:
    task_id = harness.claimed()
    server = overtaken(harness, lambda: harness.services.tasks.cancel(task_id))
    with pytest.raises(RequestConflict):
        harness.shut_down(task_id, services=server)
    assert harness.states(task_id) == ["exception canceled"]


def test_a_claim_after_the_last_retry_has_expired_resolves_the_task(harness: Harness) -> None:
    task_id = harness.claimed(ALICE, retries=0)
    harness.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="its claim expired and no retries are left"):
        harness.claim(harness.receive_one(), BOB)
    assert harness.states(task_id) == ["exception claim-expired"]
    assert harness.messages() == []


def test_a_process_with_an_outdated_task_in_its_cache_does_not_claim_with_a_message_of_the_old_priority(
    harness: Harness,
) -> None:
    task_id, other = slugid(), harness.replica(caches_tasks=True)
    other.tasks.create(task_id, task_body(priority="high"))
    harness.services.tasks.change_priority(task_id, "high", "lowest")
    (message,) = harness.receive(queue=HIGH)
    assert other.claims.claim_polled(HIGH, message.received, ALICE) is None
    assert [run_id for run_id, _ in harness.offered_runs()] == [0, 0]
    message = harness.receive()[0]
    other.claims.claim_polled(QUEUE, message.received, ALICE)
    harness.services.tasks.change_priority(task_id, "lowest", "high")
    assert other.claims.claim_polled(QUEUE, message.received, BOB) is None
    with pytest.raises(RequestConflict, match="changed from lowest to high"):
        harness.services.tasks.change_priority(task_id, "lowest", "highest")


def test_a_task_with_missing_events_is_marked_though_another_process_changes_it_meanwhile(
    harness: Harness,
) -> None:
    task_id = harness.create()
    harness.broker.capacity = 0
    change = lambda: harness.services.tasks.change_priority(task_id, "lowest", "high")  # noqa: E731
    server = harness.replica(FaultAt(1, of="replace", before=change))  # call 0 is the claim's
    harness.claim(harness.receive_one(), services=server)
    assert (harness.task(task_id).priority, harness.task(task_id).is_unpublished) == ("high", True)


def test_a_report_repeated_while_the_broker_is_away_is_published_when_it_is_back(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.complete(task_id)
    harness.do_work()
    harness.broker.capacity = 0
    harness.complete(task_id)
    harness.events()
    harness.broker.capacity = None
    harness.do_work(MINUTE)
    assert ("task-completed", task_id, 0) in harness.events()


def test_repeating_the_create_of_a_resolved_task_publishes_again_that_its_group_is_resolved(
    harness: Harness,
) -> None:
    task_id, body = slugid(), task_body(taskGroupId=slugid())
    harness.services.tasks.create(task_id, body)
    harness.run(task_id)
    harness.do_work()
    harness.events()
    harness.broker.capacity = 0
    assert harness.services.tasks.create(task_id, body).state == "completed"
    with pytest.raises(RequestConflict):
        harness.services.tasks.create(task_id, {**body, "payload": {}})
    harness.broker.capacity = None
    harness.do_work()
    assert harness.events()[-1] == ("task-group-resolved", body["taskGroupId"], None)


@pytest.mark.parametrize("call", [Tasks.cancel, Tasks.rerun])
def test_a_call_during_a_create_first_publishes_the_events_of_the_create(
    harness: Harness, call: Callable[[Tasks, str], Task]
) -> None:
    task_id = slugid()
    meanwhile = FaultAt(0, of="broker.publish", before=lambda: call(services.tasks, task_id))
    services = harness.replica(meanwhile)
    services.tasks.create(task_id, task_body())
    names = [*dict.fromkeys(name for name, about, _ in harness.events() if about == task_id)]
    assert names[:3] == ["task-defined", "task-pending", "task-exception"][: len(names)]


def test_no_call_can_resolve_a_task_while_the_resolver_is_too_far_behind(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = harness.create()
    harness.services.groups.seal(task_id)
    monkeypatch.setattr(ledger, "_MAX_OPEN", 0)
    monkeypatch.setattr(ledger, "_WAIT_FOR_ROOM", 0)
    tasks, group_changes = harness.services.tasks, harness.services.group_changes
    ends: list[Callable[[], object]] = [
        lambda: tasks.cancel(task_id),
        lambda: tasks.report(task_id, 0, "completed", "completed"),
        lambda: group_changes.cancel(task_id),
    ]
    for end in ends:
        with pytest.raises(ServiceUnavailable):
            end()
    assert harness.states(task_id) == ["pending"]
