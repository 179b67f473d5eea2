"""Fired timers are handled: none is lost, none blocks others, none is retried for ever."""

import itertools
from collections.abc import MutableMapping
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import BrokerAway
from legacy_queue.services.composition import Services
from legacy_queue.services.recovery.advance import Advance, Next
from legacy_queue.services.recovery.resolver import Resolver
from legacy_queue.services.recovery.timers import FiredTimer, Timers
from legacy_queue.services.tasks.groups import Groups
from tests.memory_server import FakeClock
from tests.services.harness import HOUR, MINUTE, NOW, SECOND, FaultAt, Harness, task_body

TASK_ID = slugid()
AT_ONCE = timedelta(0)
DONE = Next()
MISSING = Next(exists=False)
Answer = Next | Exception


class Resolving:
    """A resolver whose advance gives these answers in turn, and then repeats the last."""

    def __init__(self, *answers: Answer) -> None:
        self.harness = Harness()
        self.clock = self.harness.clock
        self.timers = Timers(self.harness.storage.timers, self.clock)
        self.left: list[tuple[str, str]] = []  # task, group
        self.calls: list[tuple[timedelta, datetime | None, bool]] = []  # when, since, is_published
        self.fired: list[FiredTimer] = []
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        groups = cast(Groups, self)
        self.resolver = Resolver(self.timers, cast(Advance, self), groups, self.clock)

    def leave(self, *task_and_group: str) -> None:
        self.left.append(cast(tuple[str, str], task_and_group))

    def repeat_effects(self, fired: FiredTimer) -> Next:
        """``Advance.repeat_effects``."""
        self.fired.append(fired)
        return self._answer(fired.since, is_published=fired.is_published)

    def end_if_due(self, _task_id: str, *, is_published: bool) -> Next:
        """``Advance.end_if_due``."""
        assert not is_published
        return self._answer(None, is_published=True)

    def _answer(self, since: datetime | None, *, is_published: bool) -> Next:
        self.calls.append((self.clock.now() - NOW, since, is_published))
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def retry_later(self, group: str = "", *, is_published: bool = False) -> None:
        self.timers.schedule(TASK_ID, self.clock.now(), group)
        self.timers.retry_later(TASK_ID, is_published=is_published)

    def pass_by(self, duration: timedelta) -> None:
        """Advance the clock second by second."""
        end = self.clock.now() + duration
        self.resolver.handle_all()
        while self.clock.now() < end:
            self.clock.advance(SECOND)
            self.timers.tick()
            self.resolver.handle_all()

    @property
    def times(self) -> list[timedelta]:
        return [when for when, _, _ in self.calls]

    @property
    def waits(self) -> list[timedelta]:
        return [later - earlier for earlier, later in itertools.pairwise(self.times)]


@pytest.mark.parametrize("is_published", [False, True])
def test_a_timer_is_retried_every_two_seconds_while_storage_is_away(is_published: bool) -> None:
    resolving = Resolving(*[ServiceUnavailable("storage is away")] * 30, DONE)
    resolving.retry_later(is_published=is_published)
    resolving.pass_by(10 * MINUTE)
    assert resolving.waits == [2 * SECOND] * 30
    assert {call[1:] for call in resolving.calls} == {(NOW, is_published)}
    assert resolving.harness.timers() == []


def test_a_timer_is_retried_after_growing_pauses_while_the_broker_is_away() -> None:
    """Of an event that the group is resolved; the pause is as long as the event has been missing."""
    resolving = Resolving(*[BrokerAway()] * 10, DONE)
    resolving.retry_later(is_published=True)
    resolving.pass_by(HOUR)
    assert resolving.waits == [seconds * SECOND for seconds in (2, 2, 4, 8, 16, 32, 64, 120, 120, 120)]


def test_while_the_broker_is_away_other_effects_are_applied_once_and_when_due() -> None:
    away = BrokerAway()
    resolving = Resolving(
        away, Next(NOW + 5 * SECOND), away, away, away, Next(NOW + HOUR), *[away] * 20, DONE
    )
    resolving.timers.schedule(TASK_ID, NOW)
    resolving.timers.retry_later(TASK_ID, NOW + HOUR)
    resolving.pass_by(MINUTE)
    done = [when for when, _, is_published in resolving.calls if is_published]
    assert done == [AT_ONCE, 6 * SECOND]
    published = [when for when, _, is_published in resolving.calls if not is_published]
    assert published == [number * SECOND for number in (0, 2, 4, 6, 12, 24, 48)]


def test_a_failing_timer_is_retried_with_growing_delays_and_then_abandoned(
    logs: list[MutableMapping[str, Any]],
) -> None:
    resolving = Resolving(ValueError("a defect"))
    resolving.retry_later()
    resolving.pass_by(HOUR)
    assert resolving.waits == [min(2**tries, 120) * SECOND for tries in range(10)]
    assert resolving.harness.timers() == []
    assert [entry["event"] for entry in logs] == ["timer-failed"] * 11 + ["timer-abandoned"]


@pytest.mark.parametrize("group", ["a-group-of-22-characte", ""])
def test_a_missing_task_is_awaited_for_25_seconds_and_then_leaves_its_group(group: str) -> None:
    resolving = Resolving(MISSING)
    resolving.retry_later(group)
    resolving.pass_by(HOUR)
    assert resolving.waits == [25 * SECOND]
    assert resolving.left == ([(TASK_ID, group)] if group else [])
    assert resolving.harness.timers() == []


# several processes on one storage


def look(*servers: Services) -> None:
    """What the threads of these servers do at the same time."""
    for act in (Timers.tick, Timers.receive):
        for server in servers:
            if server.periodic_jobs or act == Timers.tick:
                act(server.timers)
    for server in servers:
        server.resolver.handle_all()


@pytest.mark.parametrize("behind", [-60, 5, 21, 60])
def test_a_call_of_a_process_whose_clock_is_wrong_is_not_taken_for_dead(
    harness: Harness, behind: int
) -> None:
    """Another looks before the createTask has written its task: it must not leave its group."""
    other = harness.replica()
    slow = harness.replica(
        FaultAt(0, of="insert", before=lambda: look(other)), clock=FakeClock(NOW - behind * SECOND)
    )
    group = slugid()
    slow.tasks.create(TASK_ID, task_body(NOW, taskGroupId=group))
    assert [active.task_id for active in harness.storage.groups.all_active("", 10)[0]] == [TASK_ID]
    harness.events()
    harness.clock.advance(SECOND)
    look(other)
    assert harness.events() == []


@pytest.mark.parametrize("lives", [1, 20, 70, 200])
def test_what_a_process_had_begun_goes_on_within_30_seconds_of_its_death(
    harness: Harness, lives: int
) -> None:
    """Also while the broker is away, when it has been tried less and less often; and is not before."""
    harness.broker.capacity = 0
    dies, other = harness.replica(), harness.replica()
    dies.tasks.create(TASK_ID, task_body(NOW))
    for second in range(lives):
        harness.clock.advance(SECOND)
        look(dies)
        if second % 5 == 0:
            assert other.timers.receive() == 0
    harness.broker.capacity = None
    for _ in range(5):
        harness.clock.advance(5 * SECOND)
        look(other)
    assert harness.events() == [("task-defined", TASK_ID, None), ("task-pending", TASK_ID, 0)]
