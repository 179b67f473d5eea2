"""What drives dependents and groups: "Timers" in design/protocol.md."""

from datetime import timedelta

import pytest

from legacy_queue.domain.timers import FIRST_FIRES_AFTER
from legacy_queue.ports import Changed
from tests.services.bench import (
    CLAIM_TIMEOUT,
    MINUTE,
    At,
    Bench,
    Crash,
    failing,
)

AT_ONCE = timedelta(0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_resolution_is_handled_at_once_by_the_process_that_made_it(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.complete(task_id)
    calls = [left for _, left in bench.timers("resolved")]
    assert calls == [FIRST_FIRES_AFTER]  # if this process dies, another one does it then
    bench.run_timers()
    assert bench.events()[-1] == ("task-group-resolved", task_id, None)
    assert bench.timers("resolved") == []


def test_a_resolution_is_visible_at_once_where_its_process_does_not_resolve(bench: Bench) -> None:
    server = bench.server(resolves=False)
    task_id = bench.claimed()
    bench.complete(task_id, services=server.services)
    ((timer, left),) = bench.timers("resolved")
    assert (left, timer.untold) == (AT_ONCE, ())
    bench.run_timers()
    assert bench.events()[-1] == ("task-group-resolved", task_id, None)


def test_a_resolution_of_a_process_that_died_is_seen_through_when_its_timer_fires(bench: Bench) -> None:
    task_id = bench.claimed()
    waiting = bench.create(dependencies=[task_id])
    with pytest.raises(Crash):
        bench.complete(task_id, services=bench.replica(At(0, of="replace", after=failing(Crash()))))
    bench.events()
    bench.run_timers(FIRST_FIRES_AFTER)
    told = bench.events()
    assert told[0] == ("task-completed", task_id, 0)
    assert set(told[1:]) == {("task-pending", waiting, 0), ("task-group-resolved", task_id, None)}


def test_a_resolution_that_was_never_written_is_given_up_after_some_minutes(bench: Bench) -> None:
    task_id = bench.claimed()
    with pytest.raises(Crash):
        bench.complete(task_id, services=bench.replica(At(0, of="replace", before=failing(Crash()))))
    bench.events()
    bench.run_timers(9 * MINUTE)
    assert len(bench.timers("resolved")) == 1
    bench.run_timers(10 * MINUTE)
    assert bench.timers("resolved") == []
    assert bench.states(task_id) == ["running by alice"]
    assert ("task-completed", task_id, 0) not in bench.events()


def test_a_write_that_is_taken_for_lost_is_followed_by_all_it_causes(bench: Bench) -> None:
    """The SDK repeats a write whose answer was lost, and the repeated one finds a newer ETag: its own."""
    task_id = bench.claimed()
    waiting = bench.create(dependencies=[task_id])
    lost = At(0, of="replace", after=failing(Changed()))
    bench.complete(task_id, services=bench.replica(lost))
    bench.run_timers(MINUTE)
    assert bench.states(waiting) == ["pending"]
    assert bench.events()[-1] == ("task-group-resolved", task_id, None)


def test_a_claim_whose_write_is_taken_for_lost_has_its_end_watched(bench: Bench) -> None:
    task_id = bench.create()
    lost = At(0, of="replace", after=failing(Changed()))
    bench.claim(bench.receive_one(), services=bench.replica(lost))
    bench.run_timers(MINUTE)
    bench.run_timers(CLAIM_TIMEOUT)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]
