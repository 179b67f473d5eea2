"""What happens to a task that nobody asks for: claims and tasks end in time, and others go on."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Changed
from legacy_queue.services.claims import Presented
from legacy_queue.services.core import Core
from legacy_queue.services.timers import LEASE
from tests.memory_server import HandClock
from tests.services.bench import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Calls,
    Crash,
    failing,
    task_body,
)

AT_ONCE, DAY, MS = timedelta(0), 24 * HOUR, timedelta(milliseconds=1)
MARGIN = CLAIM_TIMEOUT / 20  # for the clock of another process
BY_NAME = Presented()
Mishap = Callable[[Bench], object]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def defined(bench: Bench) -> str:
    task_id = slugid()
    bench.services.tasks.define(task_id, task_body(bench.clock.now()))
    return task_id


def restarted(bench: Bench) -> None:
    """The process is stopped, and another one is started."""
    bench.core.timers.leave()
    bench.core = bench.server()
    bench.services = bench.core.services


def killed(bench: Bench) -> None:
    """The process is killed, and another one is started some seconds later."""
    bench.core = bench.server()
    bench.services = bench.core.services
    bench.run_timers(LEASE)


MISHAPS: dict[str, Mishap] = {
    "none": lambda _: None,
    "doubled": Bench.double_timers,
    "early": Bench.hasten_timers,
    "restarted": restarted,
    "killed": killed,
    "killed and doubled": lambda bench: (bench.double_timers(), killed(bench)),
    "killed and early": lambda bench: (bench.hasten_timers(), killed(bench)),
    "done, and killed": lambda bench: (bench.run_timers(LEASE), killed(bench)),
    "done, and doubled": lambda bench: (bench.run_timers(LEASE), bench.double_timers()),
    "done, and early": lambda bench: (bench.run_timers(LEASE), bench.hasten_timers()),
}
MISHAP = pytest.mark.parametrize("mishap", MISHAPS.values(), ids=MISHAPS)


# the end of a claim


@MISHAP
def test_a_claim_that_nobody_extends_ends_once_and_its_retry_is_visible_at_once(
    bench: Bench, mishap: Mishap
) -> None:
    task_id = bench.claimed(ALICE)
    mishap(bench)
    bench.run_timers(NOW + CLAIM_TIMEOUT - MS - bench.clock.now())
    assert bench.states(task_id) == ["running by alice"]
    bench.events()
    bench.run_timers(MS)
    bench.run_timers(MARGIN)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]
    assert bench.task(task_id).retries_left == 4
    assert [(run_id, left <= AT_ONCE) for run_id, left in bench.runs_to_come()] == [(1, True)]
    assert set(bench.events()) == {("task-pending", task_id, 1)}
    bench.claim(bench.receive_one(), BOB)
    bench.run_timers(10 * MINUTE)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_claim_of_this_process_ends_at_once_when_its_time_is_over(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.run_timers(CLAIM_TIMEOUT)
    assert bench.task(task_id).runs[0].resolved == NOW + CLAIM_TIMEOUT


def test_the_retry_of_a_claim_whose_held_message_is_lost_gets_a_fresh_one(bench: Bench) -> None:
    task = bench.task(bench.claimed())
    assert task.held
    bench.storage.work_queues.remove(task.work_queue, task.held)
    bench.run_timers(CLAIM_TIMEOUT)
    assert bench.runs_to_come() == [(1, AT_ONCE)]


def test_a_claim_that_ends_without_retries_ends_the_task(bench: Bench) -> None:
    task_id = bench.claimed(retries=0)
    bench.events()
    bench.run_timers(CLAIM_TIMEOUT)
    assert bench.states(task_id) == ["exception claim-expired"]
    assert bench.events() == [("task-exception", task_id, 0), ("task-group-resolved", task_id, None)]
    bench.run_timers()
    assert bench.messages() == bench.timers() == []


def test_retries_run_out_by_timers_alone(bench: Bench) -> None:
    task_id = bench.create(retries=2)
    for run_id in range(3):
        bench.services.claims.claim(bench.task(task_id), run_id, ALICE, BY_NAME)
        bench.run_timers(CLAIM_TIMEOUT)
    assert bench.states(task_id) == ["exception claim-expired"] * 3


def test_an_extended_claim_ends_later_and_no_reclaim_puts_a_timer(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.run_timers(10 * MINUTE)
    calls = Calls()
    services = bench.replica(calls)
    for _ in range(5):
        services.claims.reclaim(task_id, 0)
        bench.run_timers(10 * MINUTE)
    assert "timer.put" not in calls.names
    assert bench.states(task_id) == ["running by alice"]
    bench.run_timers(10 * MINUTE + MARGIN)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]


def test_a_claim_that_somebody_took_over_is_not_ended_again(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.clock.advance(CLAIM_TIMEOUT)
    bench.claim(bench.receive_one(), BOB)
    bench.run_timers(10 * MINUTE)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]
    bench.run_timers(10 * MINUTE)
    assert bench.states(task_id) == ["exception claim-expired", "exception claim-expired", "pending"]


def test_lost_timers_leave_the_claim_to_the_held_message(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.lose_timers()
    bench.core = bench.server()
    bench.run_timers(CLAIM_TIMEOUT + MARGIN)
    assert bench.states(task_id) == ["running by alice"]
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_claims_expire_when_somebody_polls_though_nothing_resolves(bench: Bench) -> None:
    """The promise of the draft: no timer fires, and there are no chores."""
    server = bench.server(resolves=False)
    assert server.chores is None
    task_id = slugid()
    server.services.tasks.create(task_id, task_body(retries=1))
    bench.claim(bench.receive_one(), ALICE, server.services)
    bench.clock.advance(CLAIM_TIMEOUT - MS)
    assert bench.receive() == []
    bench.clock.advance(MS)
    bench.claim(bench.receive_one(), BOB, server.services)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]
    bench.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="no retries are left"):
        bench.claim(bench.receive_one(), ALICE, server.services)
    assert bench.states(task_id) == ["exception claim-expired", "exception claim-expired"]


def test_a_claim_that_was_never_written_is_ended_by_no_timer(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.clock.advance(CLAIM_TIMEOUT / 2)
    bench.services.claims.reclaim(task_id, 0)
    bench.lose_timers()
    bench.core = bench.server()
    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    with pytest.raises(Crash):
        bench.claim(message, BOB, bench.replica(At(0, of="timer.put", after=failing(Crash()))))
    bench.run_timers(LEASE - SECOND)
    assert bench.states(task_id) == ["running by alice"]
    bench.run_timers(MARGIN)  # but what has ended is ended by any timer
    assert bench.states(task_id) == ["exception claim-expired", "pending"]


# the deadline


CREATED: dict[str, Callable[[Bench], str]] = {
    "unscheduled": defined,
    "pending": lambda bench: bench.create(),
    "running": lambda bench: bench.claimed(deadline=format_time(NOW + DAY)),
    "retried": lambda bench: bench.shut_down(bench.claimed()).task_id,
    "rerun": lambda bench: bench.services.tasks.rerun(bench.complete(bench.claimed()).task_id).task_id,
}


@pytest.mark.parametrize("create", CREATED.values(), ids=CREATED)
@MISHAP
def test_a_task_that_is_not_resolved_ends_once_at_its_deadline(
    bench: Bench, create: Callable[[Bench], str], mishap: Mishap
) -> None:
    task_id = create(bench)
    runs = max(len(bench.task(task_id).runs), 1)
    mishap(bench)
    bench.run_timers(NOW + DAY - 10 * MINUTE - bench.clock.now())
    if bench.task(task_id).runs:
        bench.run_timers()
        bench.services.claims.claim(bench.task(task_id), len(bench.task(task_id).runs) - 1, ALICE, BY_NAME)
        runs = len(bench.task(task_id).runs)
    bench.run_timers(10 * MINUTE - MS)
    assert not bench.task(task_id).is_resolved
    bench.events()
    bench.run_timers(MS)
    bench.run_timers(11 * SECOND)
    assert bench.states(task_id)[-1] == "exception deadline-exceeded"
    assert len(bench.task(task_id).runs) == runs
    assert bench.task(task_id).runs[-1].resolved <= NOW + DAY + 11 * SECOND
    told = [("task-exception", task_id, runs - 1), ("task-group-resolved", task_id, None)]
    assert list(dict.fromkeys(bench.events())) == told
    bench.run_timers()
    bench.run_timers(10 * MINUTE)
    assert bench.messages() == bench.timers() == []


def test_the_events_of_a_deadline_name_the_worker_that_had_the_task(bench: Bench) -> None:
    bench.claimed(deadline=format_time(NOW + MINUTE))
    bench.run_timers(MINUTE)
    event = bench.broker.told[-2]
    assert (event.exchange, event.payload["workerId"]) == ("task-exception", "alice")


def test_a_claim_that_ends_with_its_task_uses_no_retry(bench: Bench) -> None:
    task_id = bench.create(deadline=format_time(NOW + 10 * MINUTE))
    bench.claim(bench.receive_one())
    bench.run_timers(10 * MINUTE)
    assert bench.states(task_id) == ["exception deadline-exceeded"]
    assert bench.task(task_id).retries_left == 5


@pytest.mark.parametrize("lasts", [3 * SECOND, 20 * SECOND])
def test_a_deadline_within_seconds_is_kept(bench: Bench, lasts: timedelta) -> None:
    task_id = bench.create(deadline=format_time(NOW + lasts))
    bench.run_timers(lasts)
    assert bench.task(task_id).runs[0].resolved == NOW + lasts


def test_a_task_ends_late_where_no_server_was_there_at_its_deadline(bench: Bench) -> None:
    task_id = bench.create()
    bench.delete(bench.receive_one())
    bench.clock.advance(3 * DAY)
    killed(bench)
    assert bench.states(task_id) == ["exception deadline-exceeded"]
    assert bench.task(task_id).runs[0].resolved >= NOW + 3 * DAY


# what is resolved, and what is gone


@pytest.mark.parametrize("end", [Bench.complete, lambda bench, task: bench.services.tasks.cancel(task)])
@MISHAP
def test_a_task_that_has_ended_stays_as_it_is_and_leaves_no_timer(
    bench: Bench, end: Callable[[Bench, str], object], mishap: Mishap
) -> None:
    task_id = bench.claimed()
    end(bench, task_id)
    done = bench.task(task_id)
    mishap(bench)
    bench.run_timers(MINUTE)
    bench.run_timers(11 * MINUTE)  # another process may have been at it
    bench.run_timers()
    assert bench.timers() == []
    bench.run_timers(DAY)
    assert bench.task(task_id) == done


def test_a_whole_life_within_some_seconds_takes_one_message(bench: Bench) -> None:
    calls = Calls()
    server = bench.server(calls, remembers=True)
    task_id = slugid()
    server.services.tasks.create(task_id, task_body())
    bench.claim(bench.receive_one(), services=server.services)
    bench.complete(task_id, services=server.services)
    bench.run_timers(SECOND, server)
    assert calls.names.count("timer.put") == calls.names.count("timer.remove") == 1
    assert bench.timers() == []


def test_the_timer_of_a_task_that_has_expired_is_done_with(bench: Bench) -> None:
    bench.claimed()
    bench.run_timers(MINUTE)
    bench.storage.tasks.remove_expired(NOW + 900 * DAY, "", 999)
    bench.run_timers(DAY)
    bench.run_timers()
    assert bench.timers() == []


def test_what_was_done_tells_nothing_again(bench: Bench) -> None:
    bench.claimed()
    bench.events()
    for _ in range(19):
        bench.run_timers(MINUTE)
    assert bench.events() == []


# what depends on it


def test_what_is_resolved_is_followed_at_once_by_the_process_that_did_it(bench: Bench) -> None:
    for resolves in (True, False):
        server = bench.server(resolves=resolves)
        group = slugid()
        task_id = bench.claimed(taskGroupId=group)
        waiting = bench.create(dependencies=[task_id])
        bench.complete(task_id, services=server.services)
        server.resolver.handle_all()
        assert bench.states(waiting) == ["pending"]
        assert bench.events()[-1] == ("task-group-resolved", group, None)
        bench.receive()


def test_what_a_dead_process_resolved_is_followed_within_its_lease(bench: Bench) -> None:
    task_id = bench.claimed()
    waiting = bench.create(dependencies=[task_id])
    with pytest.raises(Crash):
        bench.complete(task_id, services=bench.replica(At(0, of="replace", after=failing(Crash()))))
    bench.events()
    bench.run_timers(LEASE)
    told = [event for event in bench.events() if event[0] not in ("task-defined", "task-running")]
    assert told[-1] == ("task-group-resolved", task_id, None)
    assert told.index(("task-completed", task_id, 0)) < told.index(("task-pending", waiting, 0))


def test_a_resolution_that_was_never_written_is_given_up_after_some_minutes(bench: Bench) -> None:
    task_id = bench.claimed()
    with pytest.raises(Crash):
        bench.complete(task_id, services=bench.replica(At(0, of="replace", before=failing(Crash()))))
    for _ in range(19):
        bench.run_timers(MINUTE)
    assert bench.states(task_id) == ["running by alice"]
    assert ("task-completed", task_id, 0) not in bench.events()
    assert len({timer.task_id for timer, _ in bench.timers()}) == len(bench.timers()) == 1


def lost(bench: Bench) -> Core:
    """Its first write is repeated by the SDK, as the answer was lost, and finds a newer ETag: its own."""
    return bench.server(At(0, of="replace", after=failing(Changed())))


def test_a_write_that_is_taken_for_lost_is_followed_by_all_it_causes(bench: Bench) -> None:
    task_id = bench.claimed()
    waiting = bench.create(dependencies=[task_id])
    server = lost(bench)
    bench.complete(task_id, services=server.services)
    bench.run_timers(server=server)
    assert bench.states(waiting) == ["pending"]
    assert bench.events()[-1] == ("task-group-resolved", task_id, None)


def test_a_claim_whose_write_is_taken_for_lost_ends_in_time(bench: Bench) -> None:
    task_id = bench.create()
    server = lost(bench)
    bench.claim(bench.receive_one(), services=server.services)
    bench.run_timers(CLAIM_TIMEOUT, server)
    bench.run_timers(MARGIN, server)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]


def test_a_write_that_another_process_overtook_is_published_all_the_same(bench: Bench) -> None:
    """It was taken for lost, and cancelled before it was looked at."""
    task_id = bench.create()

    def overtaken() -> None:
        bench.services.tasks.cancel(task_id)
        raise Changed

    server = bench.server(At(0, of="replace", after=overtaken))
    with pytest.raises(RequestConflict):
        bench.claim(bench.receive_one(), services=server.services)
    bench.run_timers(server=server)
    bench.run_timers()
    told = [event for event, about, _ in bench.events() if about == task_id]
    assert set(told) == {
        "task-defined",
        "task-pending",
        "task-running",
        "task-exception",
        "task-group-resolved",
    }


def test_a_transition_whose_timer_cannot_be_stored_does_not_happen(bench: Bench) -> None:
    task_id = bench.create()
    away = At(0, of="timer.put", before=failing(ServiceUnavailable("storage is away")))
    with pytest.raises(ServiceUnavailable):
        bench.replica(away).tasks.cancel(task_id)
    assert bench.states(task_id) == ["pending"]


# while the broker is away


def test_what_happens_while_the_broker_is_away_is_published_in_order_when_it_is_back(bench: Bench) -> None:
    bench.broker.room = 0
    task_id = bench.claimed()
    bench.run_timers(MINUTE)
    bench.complete(task_id)
    bench.run_timers(MINUTE)
    assert bench.events() == []
    bench.broker.room = None
    bench.services.tasks.rerun(task_id)  # not before what happened before
    assert bench.events() == []
    bench.run_timers(2 * SECOND)
    told = [("task-defined", None), ("task-pending", 0), ("task-running", 0), ("task-completed", 0)]
    assert [(event, run_id) for event, _, run_id in bench.events() if event != "task-group-resolved"] == [
        *told,
        ("task-pending", 1),
    ]


@pytest.mark.parametrize("end", [killed, restarted], ids=["killed", "stopped"])
def test_what_happened_while_the_broker_was_away_is_published_though_its_server_is_gone(
    bench: Bench, end: Callable[[Bench], None]
) -> None:
    bench.broker.room = 0
    task_id = bench.claimed()
    end(bench)
    bench.complete(task_id)
    bench.run_timers(HOUR)
    bench.broker.room = None
    bench.run_timers(2 * SECOND)
    told = [event for event, _, _ in bench.events()]
    first = {event: told.index(event) for event in told}
    assert list(first) == [
        "task-defined",
        "task-pending",
        "task-running",
        "task-completed",
        "task-group-resolved",
    ]


@pytest.mark.parametrize("end", [killed, restarted], ids=["killed", "stopped"])
def test_what_was_asked_for_again_while_the_broker_was_away_is_published_though_its_server_is_gone(
    bench: Bench, end: Callable[[Bench], None]
) -> None:
    task_id = bench.claimed()
    bench.complete(task_id)
    bench.run_timers(MINUTE)
    bench.broker.room = 0
    bench.complete(task_id)
    bench.events()
    end(bench)
    bench.broker.room = None
    bench.run_timers(HOUR)
    bench.run_timers(2 * SECOND)
    assert ("task-completed", task_id, 0) in bench.events()


def test_a_claim_ends_and_its_retry_is_offered_while_the_broker_is_away(bench: Bench) -> None:
    bench.broker.room = 0
    task_id = bench.claimed()
    bench.run_timers(CLAIM_TIMEOUT + MARGIN)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]
    assert bench.runs_to_come() == [(1, AT_ONCE)]


def test_dependents_go_on_while_the_broker_is_away(bench: Bench) -> None:
    bench.broker.room = 0
    task_id = bench.create()
    waiting = bench.create(dependencies=[task_id])
    bench.run(task_id)
    bench.run_timers(MINUTE)
    assert bench.states(waiting) == ["pending"]


def test_a_resolved_task_is_created_again_while_the_broker_is_away(bench: Bench) -> None:
    task_id, group = slugid(), slugid()
    asked_for = task_body(taskGroupId=group)
    bench.services.tasks.create(task_id, asked_for)
    bench.run(task_id)
    bench.run_timers()
    bench.events()
    bench.broker.room = 0
    assert bench.services.tasks.create(task_id, asked_for).state == "completed"
    with pytest.raises(RequestConflict):
        bench.services.tasks.create(task_id, {**asked_for, "payload": {}})
    bench.broker.room = None
    bench.run_timers()
    assert bench.events()[-1] == ("task-group-resolved", group, None)


def test_an_end_that_was_rerun_before_its_process_saw_it_is_followed_by_all_it_causes(bench: Bench) -> None:
    """Its write was taken for lost."""
    task_id = bench.claimed()
    waiting = bench.create(dependencies=[task_id])

    def rerun() -> None:
        bench.services.tasks.rerun(task_id)
        raise Changed

    server = bench.server(At(0, of="replace", after=rerun))
    bench.complete(task_id, services=server.services)
    bench.run_timers(server=server)
    assert bench.states(waiting) == ["pending"]
    told = [event for event in bench.events() if event[1] == task_id]
    assert ("task-completed", task_id, 0) in told


def test_a_race_that_was_lost_is_decided_again(bench: Bench) -> None:
    task_id = bench.create()
    bench.run(task_id)
    bench.run_timers()
    bench.events()
    server = bench.server(At(0, of="replace", before=failing(Changed())))
    server.services.tasks.rerun(task_id)
    bench.run_timers(server=server)
    assert bench.states(task_id) == ["completed completed", "pending"]
    assert bench.events() == [("task-pending", task_id, 1)]


def test_a_write_that_failed_by_a_defect_may_have_happened_and_is_looked_at(bench: Bench) -> None:
    task_id = slugid()
    server = bench.server(At(0, of="insert", after=failing(ValueError("a defect"))))
    with pytest.raises(ValueError, match="a defect"):
        server.services.tasks.create(task_id, task_body())
    bench.run_timers(LEASE, server)
    assert bench.events() == [("task-defined", task_id, None), ("task-pending", task_id, 0)]
    assert bench.runs_to_come() == [(0, AT_ONCE)]


class TickingClock(HandClock):
    """A millisecond passes whenever it is looked at."""

    def now(self) -> datetime:
        self.advance(MS)
        return super().now()


@pytest.mark.parametrize("ends", ["deadline", "claim"])
def test_what_time_ends_resolves_its_group_though_time_passes_meanwhile(bench: Bench, ends: str) -> None:
    """The run must not be resolved before its timer says that effects are missing."""
    group, clock = slugid(), TickingClock(NOW)
    server = bench.server(clock=clock)
    task_id = slugid()
    server.services.tasks.create(
        task_id, task_body(NOW, taskGroupId=group, retries=0, deadline=format_time(NOW + HOUR))
    )
    if ends == "claim":
        bench.claim(bench.receive_one(), ALICE, server.services)
    for advance in (LEASE, CLAIM_TIMEOUT if ends == "claim" else HOUR):
        clock.advance(advance)
        bench.run_timers(advance, server)
    assert bench.task(task_id).is_resolved
    assert bench.events()[-1] == ("task-group-resolved", group, None)
