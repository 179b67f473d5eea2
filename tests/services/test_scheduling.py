"""defineTask, scheduleTask, rerunTask: docs/explanation/http-contract.md#task-status."""

import pytest

from legacy_queue.domain.errors import InputError, RequestConflict, ResourceNotFound
from legacy_queue.domain.ids import slugid
from legacy_queue.services.claims import Presented
from tests.services.bench import ALICE, BOB, CLAIM_TIMEOUT, HOUR, MINUTE, SECOND, Bench, Calls, task_body

DAY = 24 * HOUR
NOTHING = Presented()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def defined(bench: Bench, **changes: object) -> str:
    task_id = slugid()
    bench.services.tasks.define(task_id, task_body(bench.clock.now(), **changes))
    return task_id


def test_a_defined_task_is_unscheduled_and_offered_to_nobody(bench: Bench) -> None:
    task_id = slugid()
    task = bench.services.tasks.define(task_id, task_body())
    assert (task.state, task.status()["runs"]) == ("unscheduled", [])
    assert task.definition.dependencies == (task_id,)
    assert bench.messages() == []
    assert bench.events() == [("task-defined", task_id, None)]


def test_defining_again_answers_the_same_and_tells_again(bench: Bench) -> None:
    task_id = slugid()
    first = bench.services.tasks.define(task_id, task_body())
    assert bench.services.tasks.define(task_id, task_body()) == first
    assert bench.services.tasks.create(task_id, task_body(dependencies=[task_id])) == first
    assert bench.events() == [("task-defined", task_id, None)] * 3


def test_defining_what_was_scheduled_answers_as_it_is(bench: Bench) -> None:
    task_id = defined(bench)
    bench.services.tasks.schedule(task_id)
    assert bench.services.tasks.define(task_id, task_body()).state == "pending"
    bench.run(task_id)
    assert bench.services.tasks.define(task_id, task_body()).state == "completed"


def test_a_defined_task_may_depend_on_others_too(bench: Bench) -> None:
    other = bench.create()
    task_id = defined(bench, dependencies=[other])
    assert bench.task(task_id).waits_for == (other, task_id)
    bench.run(other)
    bench.run_timers()
    assert bench.states(task_id) == []
    assert bench.services.tasks.schedule(task_id).state == "pending"


def test_a_defined_task_that_names_itself_among_its_dependencies_names_itself_once(bench: Bench) -> None:
    task_id, other = slugid(), bench.create()
    task = bench.services.tasks.define(task_id, task_body(dependencies=[task_id, other]))
    assert task.definition.dependencies == (task_id, other)


def test_a_defined_task_has_room_for_99_other_dependencies(bench: Bench) -> None:
    others = [bench.create() for _ in range(100)]
    assert bench.task(defined(bench, dependencies=others[:99])).state == "unscheduled"
    with pytest.raises(InputError, match="at most 99 others"):
        bench.services.tasks.define(slugid(), task_body(dependencies=others))


def test_a_scheduled_task_is_pending_and_offered(bench: Bench) -> None:
    task_id = defined(bench)
    bench.events()
    bench.clock.advance(MINUTE)
    task = bench.services.tasks.schedule(task_id)
    assert (task.state, task.runs[0].reason_created) == ("pending", "scheduled")
    assert bench.receive_one().task_id == task_id
    assert bench.events() == [("task-pending", task_id, 0)]


def test_scheduling_again_answers_the_same_and_offers_again(bench: Bench) -> None:
    task_id = defined(bench)
    first = bench.services.tasks.schedule(task_id)
    assert bench.services.tasks.schedule(task_id) == first
    assert [run_id for run_id, _ in bench.runs_to_come()] == [0, 0]
    bench.claim(bench.receive()[0], ALICE)
    assert bench.services.tasks.schedule(task_id).state == "running"
    bench.complete(task_id)
    assert bench.services.tasks.schedule(task_id).state == "completed"


def test_a_task_is_scheduled_though_it_waits_for_others(bench: Bench) -> None:
    other = bench.create()
    task_id = bench.create(dependencies=[other])
    assert bench.services.tasks.schedule(task_id).state == "pending"
    bench.events()
    bench.run(other)
    bench.run_timers()
    assert bench.states(task_id) == ["pending"]
    assert ("task-pending", task_id, 0) not in bench.events()


@pytest.mark.parametrize("is_defined", [True, False])
def test_nothing_is_scheduled_past_the_deadline(bench: Bench, is_defined: bool) -> None:
    task_id = defined(bench) if is_defined else bench.create()
    bench.clock.advance(DAY)
    with pytest.raises(RequestConflict, match=r"its deadline .* has passed"):
        bench.services.tasks.schedule(task_id)


def test_what_was_never_created_is_neither_scheduled_nor_rerun(bench: Bench) -> None:
    for ask in (bench.services.tasks.schedule, bench.services.tasks.rerun):
        with pytest.raises(ResourceNotFound, match="there is no task"):
            ask(slugid())


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_rerun_task_is_pending_with_all_its_retries_and_can_be_run(bench: Bench, state: str) -> None:
    task_id = bench.claimed(retries=3)
    bench.shut_down(task_id)
    bench.run(task_id, state)
    bench.events()
    assert bench.task(task_id).retries_left == 2
    task = bench.services.tasks.rerun(task_id)
    assert (task.state, task.retries_left) == ("pending", 3)
    assert [run.reason_created for run in task.runs] == ["scheduled", "retry", "rerun"]
    assert bench.events() == [("task-pending", task_id, 2)]
    messages = [one for one in bench.receive() if one.run_id == 2]
    assert bench.claim(messages[0], BOB)["runId"] == 2
    assert bench.complete(task_id, 2).state == "completed"


def test_rerunning_again_answers_the_same_until_it_is_resolved_again(bench: Bench) -> None:
    task_id = bench.create()
    bench.run(task_id)
    first = bench.services.tasks.rerun(task_id)
    assert bench.services.tasks.rerun(task_id) == first
    bench.claim(next(one for one in bench.receive() if one.run_id == 1))
    assert bench.services.tasks.rerun(task_id).state == "running"
    bench.complete(task_id, 1)
    assert len(bench.services.tasks.rerun(task_id).runs) == 3


@pytest.mark.parametrize("end", ["cancel", "deadline"])
def test_a_canceled_task_is_rerun_and_one_past_its_deadline_is_not(bench: Bench, end: str) -> None:
    task_id = defined(bench)
    if end == "cancel":
        bench.services.tasks.cancel(task_id)
        assert bench.services.tasks.rerun(task_id).state == "pending"
        return
    bench.run_timers(DAY + SECOND)
    assert bench.states(task_id) == ["exception deadline-exceeded"]
    with pytest.raises(RequestConflict, match=r"its deadline .* has passed"):
        bench.services.tasks.rerun(task_id)


def test_an_unscheduled_task_is_not_scheduled_by_a_rerun(bench: Bench) -> None:
    task_id = defined(bench)
    assert bench.services.tasks.rerun(task_id).state == "unscheduled"
    assert bench.messages() == []


def test_a_task_is_rerun_until_it_has_had_50_runs(bench: Bench) -> None:
    task_id = bench.create(retries=5)
    for run_id in range(49):
        bench.run(task_id)
        task = bench.services.tasks.rerun(task_id)
        assert (len(task.runs), task.retries_left) == (run_id + 2, min(5, 48 - run_id))
    bench.run(task_id)
    with pytest.raises(RequestConflict, match="it has had 50 runs"):
        bench.services.tasks.rerun(task_id)
    assert len(bench.task(task_id).runs) == 50


def test_the_last_run_that_there_is_room_for_is_not_retried(bench: Bench) -> None:
    task_id = bench.create(retries=49)
    for run_id in range(50):
        bench.services.claims.claim(bench.task(task_id), run_id, ALICE, NOTHING)
        bench.shut_down(task_id, run_id)
    assert bench.task(task_id).state == "exception"
    assert len(bench.task(task_id).runs) == 50


def test_a_rerun_task_has_its_deadline_and_its_claims_watched(bench: Bench) -> None:
    task_id = bench.create()
    bench.run(task_id)
    bench.run_timers(HOUR)
    assert bench.timers() == []
    bench.services.tasks.rerun(task_id)
    bench.services.claims.claim(bench.task(task_id), 1, ALICE, NOTHING)
    bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.states(task_id) == ["completed completed", "exception claim-expired", "pending"]
    bench.run_timers(DAY)
    assert bench.states(task_id)[-1] == "exception deadline-exceeded"


def test_a_replica_that_remembers_an_older_run_reruns_what_there_is(bench: Bench) -> None:
    """The activation of a run that was resolved since would leave the group active for good."""
    task_id = bench.create()
    bench.run(task_id)
    bench.run_timers()
    other = bench.replica(remembers=True)
    other.tasks.load(task_id)
    bench.services.tasks.rerun(task_id)
    bench.run(task_id)
    bench.run_timers()
    other.tasks.rerun(task_id)
    bench.run(task_id)
    bench.events()
    bench.run_timers()
    assert bench.events() == [("task-group-resolved", task_id, None)]
    assert bench.storage.groups.all_active("", 9)[0] == []


def test_what_schedule_and_rerun_cost(bench: Bench) -> None:
    calls = Calls()
    services = bench.replica(calls, remembers=True)
    task_id = defined(bench)
    services.tasks.schedule(task_id)
    assert calls.names == ["load", "timer.put", "replace", "broker.publish", "put"]
    bench.run(task_id)
    calls.names.clear()
    services.tasks.rerun(task_id)  # its timer is still there
    assert calls.names == ["load", "activate", "replace", "broker.publish", "put"]
