"""A changed priority: where the messages of the task are, whatever fails and whoever is faster."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES, WorkQueue
from legacy_queue.ports.queue import QueueNotFound
from legacy_queue.services.claims import Presented
from tests.services.bench import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    PROVISIONER,
    WORKER_TYPE,
    At,
    Bench,
    Calls,
    Crash,
    Message,
    failing,
    task_body,
)
from tests.services.interleaving import every_order, pausing, run

QUEUES = {priority: WorkQueue(PROVISIONER, WORKER_TYPE, priority) for priority in PRIORITIES}
CHANGED = "task-priority-changed"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def change(bench: Bench, task_id: str, new: str = "high", old: str = "lowest") -> None:
    bench.services.tasks.change_priority(task_id, old, new)


def runs_in(bench: Bench) -> dict[str, list[int]]:
    """The runs that the messages in each queue lead to, for the queues that have any."""
    runs = {}
    for priority, queue in QUEUES.items():
        with suppress(QueueNotFound):
            runs[priority] = [Message.read(one).run_id for one in bench.messages(queue)]
    return {priority: found for priority, found in runs.items() if found}


def claim_work(bench: Bench) -> list[str]:
    answer = bench.services.claim_work.claim(PROVISIONER, WORKER_TYPE, ALICE, 1, lambda: False)
    return [one["status"]["taskId"] for one in answer["tasks"]]


def work(bench: Bench) -> list[str]:
    """The tasks that claimWork finds in all queues, as it polls them."""
    claimed = []
    for queue in QUEUES.values():
        for message in bench.receive(queue=queue):
            claim = bench.services.claims.claim_polled(queue, message.received, ALICE)
            claimed += [message.task_id] if claim else []
    return claimed


def changes_told(bench: Bench) -> list[tuple[str, str]]:
    return [
        (event.payload["oldPriority"], event.payload["newPriority"])
        for event in bench.broker.told
        if event.exchange == CHANGED
    ]


def test_a_pending_task_is_found_where_its_new_priority_is_polled(bench: Bench) -> None:
    task_id = bench.create()
    change(bench, task_id)
    (message,) = bench.receive(queue=QUEUES["high"])
    claim = bench.claim(message)
    assert (claim["runId"], claim["task"]["priority"], claim["status"]["priority"]) == (0, "high", "high")
    assert bench.task(task_id).held


def test_claim_work_takes_a_raised_task_first(bench: Bench) -> None:
    bench.create(priority="medium")
    task_id = bench.create()
    change(bench, task_id)
    assert claim_work(bench) == [task_id]


def test_claim_work_takes_a_lowered_task_last_and_moves_its_old_message(bench: Bench) -> None:
    lowered = bench.create(priority="highest")
    change(bench, lowered, "low", "highest")
    other = bench.create(priority="medium")
    assert claim_work(bench) == [other]
    assert runs_in(bench) == {"medium": [1], "low": [0, 0]}
    assert claim_work(bench) == [lowered]
    assert work(bench) == []
    assert runs_in(bench) == {"medium": [1], "low": [1]}


def test_a_message_of_a_running_run_is_not_moved(bench: Bench) -> None:
    task_id = bench.create(priority="highest")
    change(bench, task_id, "low", "highest")
    bench.services.claims.claim(bench.task(task_id), 0, ALICE, Presented())
    bench.receive(queue=QUEUES["low"])
    assert work(bench) == []
    assert runs_in(bench) == {"low": [0, 1]}


def test_without_any_timer_a_server_that_dies_strands_no_task() -> None:
    bench = Bench()
    task_id = bench.create(priority="highest")
    dying = bench.replica(At(0, of="replace", after=failing(Crash())))
    with suppress(Crash):
        dying.tasks.change_priority(task_id, "highest", "low")
    bench.lose_timers()
    assert runs_in(bench) == {"highest": [0]}
    assert [*work(bench), *work(bench)] == [task_id]


def test_a_process_that_remembers_the_old_priority_does_not_claim_early() -> None:
    bench = Bench()
    other = bench.server(remembers=True)
    task_id = slugid()
    other.services.tasks.create(task_id, task_body(priority="highest"))
    change(bench, task_id, "low", "highest")
    (message,) = bench.receive(queue=QUEUES["highest"])
    assert other.services.claims.claim_polled(QUEUES["highest"], message.received, ALICE) is None
    assert runs_in(bench) == {"low": [0, 0]}


def test_a_process_that_remembers_the_old_priority_does_not_drop_the_message_of_the_new() -> None:
    bench = Bench()
    other = bench.server(remembers=True)
    task_id = slugid()
    other.services.tasks.create(task_id, task_body())
    change(bench, task_id)
    (message,) = bench.receive(queue=QUEUES["high"])
    assert other.services.claims.claim_polled(QUEUES["high"], message.received, ALICE)


def test_a_worker_that_polls_by_itself_may_claim_by_the_old_message(bench: Bench) -> None:
    task_id = bench.create()
    (message,) = bench.receive()
    change(bench, task_id)
    bench.claim(message)
    held = bench.task(task_id).held
    assert held
    assert held.message_id in [one.lease.message_id for one in bench.messages(QUEUES["high"])]


def test_the_held_message_goes_along(bench: Bench) -> None:
    task_id = bench.claimed()
    change(bench, task_id)
    assert runs_in(bench) == {"high": [1]}
    (message,) = bench.messages(QUEUES["high"])
    assert message.lease == bench.task(task_id).held
    assert message.next_visible >= NOW + CLAIM_TIMEOUT
    bench.services.claims.reclaim(task_id, 0)
    assert runs_in(bench) == {"high": [1]}


def test_a_retry_is_offered_with_the_new_priority(bench: Bench) -> None:
    task_id = bench.claimed()
    change(bench, task_id)
    bench.shut_down(task_id)
    (message,) = bench.receive(queue=QUEUES["high"])
    assert bench.claim(message, BOB)["runId"] == 1


def test_a_claim_that_expires_is_found_where_the_new_priority_is_polled(bench: Bench) -> None:
    task_id = bench.claimed()
    change(bench, task_id)
    bench.clock.advance(CLAIM_TIMEOUT)
    (message,) = bench.receive(queue=QUEUES["high"])
    assert bench.claim(message, BOB)["runId"] == 1
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_the_sweeper_offers_where_the_new_priority_is_polled(bench: Bench) -> None:
    task_id = bench.create()
    change(bench, task_id)
    for queue in QUEUES.values():
        bench.receive(queue=queue)
    bench.lose_timers()
    bench.sweep(HOUR)
    assert runs_in(bench)["high"] == [0, 0]


def test_a_changed_priority_is_told(bench: Bench) -> None:
    task_id = bench.create()
    change(bench, task_id)
    change(bench, task_id, "low", "high")
    assert changes_told(bench) == [("lowest", "high"), ("high", "low")]


def test_changes_while_the_broker_is_away_are_told_in_order_when_it_is_back(bench: Bench) -> None:
    task_id = bench.create()
    bench.broker.room = 0
    change(bench, task_id)
    change(bench, task_id, "low", "high")
    assert changes_told(bench) == []
    bench.broker.room = None
    bench.run_timers(MINUTE)
    assert changes_told(bench) == [("lowest", "high"), ("high", "low")]


def test_the_definition_as_it_was_first_given_creates_the_same_task_again(bench: Bench) -> None:
    task_id, body = slugid(), task_body()
    bench.services.tasks.create(task_id, body)
    change(bench, task_id)
    assert bench.services.tasks.create(task_id, body).status() == bench.task(task_id).status()
    assert set(runs_in(bench)) == {"lowest", "high"}


def test_what_was_changed_meanwhile_is_not_changed_without_asking_again(bench: Bench) -> None:
    task_id = bench.create()
    change(bench, task_id, "highest")
    with pytest.raises(RequestConflict, match="changed from lowest to highest"):
        change(bench, task_id, "high")


def test_a_change_costs_as_much_as_another_transition(bench: Bench) -> None:
    task_id, calls = bench.create(), Calls()
    bench.replica(calls).tasks.change_priority(task_id, "lowest", "high")
    assert calls.names == ["load", "timer.put", "replace", "broker.publish", "put"]


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("error", [Crash(), ServiceUnavailable("storage is away")])
@pytest.mark.parametrize("is_after", [False, True])
def test_whatever_fails_the_run_is_found_with_the_priority_that_the_task_has(
    is_running: bool, error: BaseException, is_after: bool
) -> None:
    """At each of the calls, before it or after it; claimWork drops what is in the wrong queue."""

    def play(call: int) -> bool:
        bench = Bench()
        task_id = bench.claimed() if is_running else bench.create()
        fault = At(call, **{"after" if is_after else "before": failing(error)})
        with suppress(Crash, ServiceUnavailable):
            bench.replica(fault).tasks.change_priority(task_id, "lowest", "high")
        bench.run_timers(MINUTE, bench.server())
        if is_running:
            bench.clock.advance(CLAIM_TIMEOUT)
        assert work(bench) == [task_id]
        run = bench.task(task_id).runs[-1]
        assert (run.run_id, run.state) == (int(is_running), "running")
        assert work(bench) == []
        return fault.happened

    call = 0
    while play(call):
        call += 1
    assert call >= 5


def _pausing(name: str, call: Callable[[], Any]) -> Any:
    """Around the calls that matter to the other: those of the task and of its messages."""
    return pausing(name, call) if name in ("load", "replace", "put", "hide", "remove") else call()


def test_claimed_and_changed_at_once_the_task_runs_once_and_its_held_message_has_its_priority() -> None:
    old, new = "highest", "low"

    def scene(choose: Callable[[int], int]) -> None:
        bench = Bench()
        task_id = bench.create(priority=old)
        (message,) = bench.receive(queue=QUEUES[old])
        one, two = bench.replica(_pausing), bench.replica(_pausing)
        run(
            [
                lambda: one.claims.claim_polled(QUEUES[old], message.received, ALICE),
                lambda: two.tasks.change_priority(task_id, old, new),
            ],
            choose,
        )
        task = bench.task(task_id)
        assert task.priority == new
        if task.state == "pending":
            assert 0 in runs_in(bench)[new]
            assert work(bench) == [task_id]
            task = bench.task(task_id)
        assert task.held
        (held,) = (one for one in bench.messages(QUEUES[new]) if one.lease == task.held)
        assert Message.read(held).run_id == 1
        assert len(task.runs) == 1

    assert every_order(scene) > 10


def test_two_changes_at_once_end_with_one_priority_and_its_message() -> None:
    def scene(choose: Callable[[int], int]) -> None:
        bench = Bench()
        task_id = bench.create()
        one, two = bench.replica(pausing), bench.replica(pausing)
        results = run(
            [
                lambda: one.tasks.change_priority(task_id, "lowest", "high"),
                lambda: two.tasks.change_priority(task_id, "lowest", "low"),
            ],
            choose,
        )
        assert sum(isinstance(one, RequestConflict) for one in results) <= 1
        assert 0 in runs_in(bench)[bench.task(task_id).priority]

    assert every_order(scene) > 10


def test_a_presented_message_of_the_old_queue_is_held_afresh_in_the_new(bench: Bench) -> None:
    task_id = bench.create()
    (message,) = bench.receive()
    change(bench, task_id)
    bench.services.claims.claim(bench.task(task_id), 0, ALICE, Presented())
    assert sorted(runs_in(bench)["high"]) == [0, 1]
    with pytest.raises(RequestConflict):
        bench.claim(message, BOB)


def test_an_event_of_a_change_has_its_routes(bench: Bench) -> None:
    change(bench, bench.create(routes=["index.a"]))
    (event,) = [one for one in bench.broker.told if one.exchange == CHANGED]
    assert isinstance(event, Event)
    assert event.routes == ("index.a",)
