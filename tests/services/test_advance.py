"""The one way in which a task goes on by itself: each thing that it repeats, and what it ends."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.ports import BrokerAway, Corrupt
from legacy_queue.services.advance import Next
from legacy_queue.services.core import Core
from tests.services.artifact_calls import NAME, body
from tests.services.bench import (
    ALICE,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Calls,
    Crash,
    Told,
    failing,
    task_body,
)
from tests.services.test_stale_memory import StaleTasks

AT_ONCE, DAY = timedelta(0), 24 * HOUR
MARGIN = CLAIM_TIMEOUT / 20  # for the clock of another process


@pytest.fixture
def bench() -> Bench:
    return Bench()


def advance(bench: Bench, task_id: str, *args: Any, server: Core | None = None, **kwargs: Any) -> Next:
    """On a server of which no timer is looked at."""
    return (server or bench.server()).resolver._advance(task_id, *args, **kwargs)


def dies_after(bench: Bench, write: str, call: Callable[[Core], object]) -> None:
    """A server that dies once it has written, before it has done anything else."""
    with pytest.raises(Crash):
        call(bench.server(At(0, of=write, after=failing(Crash()))))


def defined(bench: Bench, **changes: Any) -> str:
    task_id = slugid()
    bench.services.tasks.define(task_id, task_body(bench.clock.now(), **changes))
    return task_id


# what it repeats


def test_a_task_that_misses_nothing_and_is_not_due_costs_one_read(bench: Bench) -> None:
    for task_id, due in ((bench.claimed(), CLAIM_TIMEOUT + MARGIN), (bench.create(), DAY)):
        calls = Calls()
        bench.events()
        assert advance(bench, task_id, server=bench.server(calls)) == Next(NOW + due)
        assert (calls.names, bench.events()) == (["load"], [])


def test_what_was_created_is_published_and_offered_when_its_server_died(bench: Bench) -> None:
    task_id = slugid()
    dies_after(bench, "insert", lambda server: server.services.tasks.create(task_id, task_body()))
    assert (bench.events(), bench.messages()) == ([], [])
    assert advance(bench, task_id, NOW) == Next(NOW + DAY)
    assert bench.events() == [("task-defined", task_id, None), ("task-pending", task_id, 0)]
    assert bench.runs_to_come() == [(0, AT_ONCE)]


def test_what_was_created_to_wait_is_registered_and_rechecked_when_its_server_died(bench: Bench) -> None:
    first, second = bench.create(), bench.create()
    task_id = slugid()
    body = task_body(dependencies=[first, second])
    dies_after(bench, "insert", lambda server: server.services.tasks.create(task_id, body))
    bench.run(first)
    bench.run_timers()
    assert bench.task(task_id).waits_for == (first, second)
    advance(bench, task_id, NOW)
    assert bench.task(task_id).waits_for == (second,)
    bench.run(second)
    bench.run_timers()
    assert bench.states(task_id) == ["pending"]


def test_events_since_are_published_again_in_order_and_older_ones_are_not(bench: Bench) -> None:
    task_id = bench.create()
    bench.clock.advance(MINUTE)
    claimed = bench.clock.now()
    bench.claim(bench.receive_one())
    bench.clock.advance(MINUTE)
    bench.shut_down(task_id)
    bench.events()
    advance(bench, task_id, claimed)
    assert bench.events() == [("task-running", task_id, 0), ("task-pending", task_id, 1)]
    advance(bench, task_id, bench.clock.now())
    assert bench.events() == [("task-pending", task_id, 1)]


def test_an_artifact_that_was_not_published_is_if_it_is_there(bench: Bench) -> None:
    task_id = bench.claimed()
    create: Callable[[Core], object] = lambda server: server.services.artifacts.create(  # noqa: E731
        task_id, 0, NAME, body("s3")
    )
    create(bench.core)
    bench.clock.advance(SECOND)
    bench.events()
    since = bench.clock.now()
    advance(bench, task_id, since, [(0, NAME), (0, "another"), (7, NAME)])
    assert bench.events() == [("artifact-created", task_id, 0)]
    advance(bench, task_id, since, [(0, NAME)], is_published=True)
    assert bench.events() == []


def test_what_is_published_already_is_not_published_again(bench: Bench) -> None:
    group = slugid()
    task_id = bench.claimed(taskGroupId=group)
    bench.complete(task_id)
    bench.events()
    calls = Calls()
    assert advance(bench, task_id, NOW, is_published=True, server=bench.server(calls)) == Next()
    assert bench.events() == [("task-group-resolved", group, None)]


def test_what_has_just_been_written_here_is_not_read_again(bench: Bench) -> None:
    calls = Calls()
    server = bench.server(calls, remembers=True)
    task_id = slugid()
    server.services.tasks.create(task_id, task_body())
    server.services.tasks.cancel(task_id)
    calls.names.clear()
    advance(bench, task_id, NOW, is_published=True, recalls=True, server=server)
    assert calls.names == ["dependency.has_any", "load", "broker.publish"]  # it loads the group


def test_what_is_remembered_without_its_end_is_read(bench: Bench) -> None:
    """Another call may have read the task before it ended, and remembered that later."""
    task_id = bench.claimed()
    waiting = bench.create(dependencies=[task_id])
    before = bench.storage.tasks.load(task_id)
    bench.complete(task_id)
    server = bench.server(wrapped=lambda tasks: StaleTasks(tasks, before))
    bench.events()
    advance(bench, task_id, NOW, is_published=True, recalls=True, server=server)
    assert bench.states(waiting) == ["pending"]
    assert ("task-group-resolved", task_id, None) in bench.events()


def test_the_dependents_of_what_ended_go_on_and_its_group_is_resolved(bench: Bench) -> None:
    group = slugid()
    task_id = bench.claimed(taskGroupId=group)
    waiting = bench.create(dependencies=[task_id])
    needs_both = bench.create(dependencies=[task_id, waiting])
    dies_after(bench, "replace", lambda server: bench.complete(task_id, services=server.services))
    bench.events()
    assert advance(bench, task_id, NOW) == Next()
    told = bench.events()
    assert told[-1] == ("task-group-resolved", group, None)
    assert ("task-completed", task_id, 0) in told
    assert (bench.states(waiting), bench.states(needs_both)) == (["pending"], [])


def test_of_what_was_rerun_the_dependents_of_its_earlier_end_go_on(bench: Bench) -> None:
    task_id = bench.claimed()
    waiting = bench.create(dependencies=[task_id])
    dies_after(bench, "replace", lambda server: bench.complete(task_id, services=server.services))
    bench.clock.advance(SECOND)
    bench.services.tasks.rerun(task_id)
    bench.events()
    advance(bench, task_id, NOW)
    assert bench.states(waiting) == ["pending"]
    told = [event for event in bench.events() if event[1] == task_id]
    assert told[-2:] == [("task-completed", task_id, 0), ("task-pending", task_id, 1)]


def test_an_end_that_others_were_told_of_before_is_not_repeated(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.complete(task_id)
    bench.run_timers()
    bench.clock.advance(SECOND)
    bench.events()
    calls = Calls()
    advance(bench, task_id, bench.clock.now(), server=bench.server(calls))
    assert (bench.events(), calls.names) == ([], ["load"])


def test_a_definition_that_was_refused_leaves_the_group_that_it_named(bench: Bench) -> None:
    group, task_id = slugid(), bench.create()
    done = bench.create(taskGroupId=group)
    bench.run(done)
    bench.run_timers()
    another = task_body(taskGroupId=group)
    dies_after(bench, "join", lambda server: server.services.tasks.create(task_id, another))
    bench.events()
    active = bench.storage.groups.load(group)
    assert active
    assert active.active == 1
    advance(bench, task_id, bench.clock.now() + SECOND, (), group)
    assert bench.events() == [("task-group-resolved", group, None)]


def test_a_resolved_task_that_was_created_again_ends_in_its_group_again(bench: Bench) -> None:
    group, task_id = slugid(), slugid()
    asked_for = task_body(taskGroupId=group)
    bench.services.tasks.create(task_id, asked_for)
    bench.run(task_id)
    bench.run_timers()
    bench.clock.advance(SECOND)
    dies_after(bench, "join", lambda server: server.services.tasks.create(task_id, asked_for))
    bench.events()
    advance(bench, task_id, bench.clock.now(), (), group)
    assert bench.events() == [("task-group-resolved", group, None)]


# what it ends


@pytest.mark.parametrize(("retries", "state"), [(1, "pending"), (0, "exception")])
def test_a_claim_that_is_over_ends_a_minute_late_if_another_process_counted_it(
    bench: Bench, retries: int, state: str
) -> None:
    task_id = bench.claimed(retries=retries)
    server = bench.server()
    bench.clock.advance(CLAIM_TIMEOUT)
    assert advance(bench, task_id, server=server) == Next(NOW + CLAIM_TIMEOUT + MARGIN)
    bench.clock.advance(MARGIN - SECOND)
    assert advance(bench, task_id, server=server) == Next(NOW + CLAIM_TIMEOUT + MARGIN)
    assert bench.states(task_id) == ["running by alice"]
    bench.clock.advance(SECOND)
    assert advance(bench, task_id, server=server) == Next(NOW + DAY if retries else None)
    assert bench.task(task_id).state == state


def test_no_claim_is_kept_past_the_deadline_of_its_task(bench: Bench) -> None:
    task_id = bench.claimed(deadline=format_time(NOW + CLAIM_TIMEOUT + SECOND))
    assert advance(bench, task_id) == Next(NOW + CLAIM_TIMEOUT + SECOND)


def test_a_claim_that_this_process_counted_ends_in_time(bench: Bench) -> None:
    server = bench.server(remembers=True)
    task_id = bench.create()
    bench.claim(bench.receive_one(), ALICE, server.services)
    bench.clock.advance(CLAIM_TIMEOUT - SECOND)
    assert advance(bench, task_id, server=server) == Next(NOW + CLAIM_TIMEOUT)
    bench.clock.advance(SECOND)
    advance(bench, task_id, server=server)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]


@pytest.mark.parametrize(
    "create",
    [defined, lambda bench: bench.create(), lambda bench: bench.claimed()],
    ids=["unscheduled", "pending", "running"],
)
def test_a_task_that_is_not_resolved_ends_at_its_deadline(
    bench: Bench, create: Callable[[Bench], str]
) -> None:
    task_id = create(bench)
    for _ in range(72 * ("running" in bench.task(task_id).state)):  # a claim kept up to the end
        bench.clock.advance(20 * MINUTE - SECOND)
        bench.services.claims.reclaim(task_id, 0)
    left = NOW + DAY - bench.clock.now()
    bench.clock.advance(left - SECOND)
    assert advance(bench, task_id) == Next(NOW + DAY)
    assert not bench.task(task_id).is_resolved
    bench.clock.advance(SECOND)
    assert advance(bench, task_id) == Next()
    assert bench.states(task_id)[-1] == "exception deadline-exceeded"
    assert advance(bench, task_id) == Next()


def test_what_ends_is_done_with_the_rest_that_its_end_means(bench: Bench) -> None:
    task_id = bench.claimed(retries=0)
    bench.events()
    server = bench.server()
    bench.clock.advance(CLAIM_TIMEOUT + MARGIN)
    advance(bench, task_id, server=server)
    server.resolver.handle_all()
    expected: list[Told] = [("task-exception", task_id, 0), ("task-group-resolved", task_id, None)]
    assert (bench.events(), bench.messages()) == (expected, [])


# when it cannot


def test_a_task_that_is_not_there_is_not(bench: Bench) -> None:
    for since in (None, NOW):
        assert advance(bench, slugid(), since) == Next(is_there=False)


def test_while_the_broker_is_away_nothing_is_read_for_what_is_to_be_published(bench: Bench) -> None:
    task_id = bench.create()
    calls = Calls()
    server = bench.server(calls)
    bench.broker.room = 0
    with pytest.raises(BrokerAway):
        advance(bench, task_id, NOW, server=server)
    assert calls.names == ["load", "broker.publish"]
    calls.names.clear()
    with pytest.raises(BrokerAway):
        advance(bench, task_id, NOW, server=server)
    assert calls.names == []
    assert advance(bench, task_id, server=server) == Next(NOW + DAY)


@pytest.mark.parametrize("of", ["load", "replace"])
def test_storage_that_is_away_is_for_the_caller_to_know(bench: Bench, of: str) -> None:
    task_id = bench.create()
    bench.clock.advance(DAY)
    away = At(0, of=of, before=failing(ServiceUnavailable("storage is away")))
    with pytest.raises(ServiceUnavailable):
        advance(bench, task_id, server=bench.server(away))


def test_a_task_that_cannot_be_read_is_for_the_caller_to_know(bench: Bench) -> None:
    task_id = bench.create()
    with pytest.raises(Corrupt):
        advance(bench, task_id, server=bench.server(At(0, of="load", before=failing(Corrupt("no task")))))
