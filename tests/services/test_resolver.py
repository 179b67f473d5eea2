"""The resolver looks at tasks. No task blocks the others, and no task is tried for ever."""

import itertools
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import cast

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import BrokerAway, Corrupt
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.process.ledger import Ledger, Look, Owed
from legacy_queue.services.process.processes import Processes
from legacy_queue.services.recovery import resolver
from legacy_queue.services.recovery.advance import Advance, LookResult
from legacy_queue.services.recovery.resolver import Resolver
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.groups import Groups
from tests.domain.sample_tasks import HOUR, MINUTE, NOW, SECOND, task_body
from tests.memory_server import FakeClock
from tests.services.fake_ports import FaultAt
from tests.services.harness import Harness, Logs
from tests.system.processes import wait_until

TASK_ID = slugid()
GROUP = "Zb0_Wh1pTLahDBzFxUqIyw"
DONE = LookResult()
MISSING = LookResult(exists=False)
Answer = LookResult | Exception


class Resolving:
    """A resolver whose ``advance`` gives these answers one after the other, and then repeats the last."""

    def __init__(self, *answers: Answer) -> None:
        self.clock = FakeClock(NOW)
        self.ledger = Ledger(self.clock)
        self.is_away = False
        self.done: list[str] = []  # what was done with groups
        self.looks: list[tuple[timedelta, Look]] = []
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        processes, groups = cast(Processes, self), cast(Groups, self)
        publisher, advance = cast(EventPublisher, self), cast(Advance, self)
        self.resolver = Resolver(processes, self.ledger, advance, groups, publisher, self.clock)

    def name_all(self, owed: list[Owed]) -> None:
        self.done += [f"{each.task_id} is named" for each in owed if not each.is_named]
        for each in owed:
            each.is_named = True

    def leave(self, task_id: str, task_group_id: str) -> None:
        self.done.append(f"{task_id} leaves {task_group_id}")

    def look(self, look: Look) -> LookResult:
        self.looks.append((self.clock.now() - NOW, look))
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def owe(self, group: str = "", since: datetime = NOW, task_id: str = TASK_ID) -> None:
        self.ledger.repeat_later([self.ledger.open(task_id, since, group, is_named=not group)])

    def pass_by(self, duration: timedelta) -> list[timedelta]:
        """Let this much time pass. Returns the times of all looks so far."""
        end = self.clock.now() + duration
        self.resolver.handle_all()
        while self.clock.now() < end:
            self.clock.advance(SECOND)
            self.ledger.fire()
            self.resolver.handle_all()
        return [when for when, _ in self.looks]

    @property
    def waits(self) -> list[timedelta]:
        return [later - earlier for (earlier, _), (later, _) in itertools.pairwise(self.looks)]


def seconds(*numbers: int) -> list[timedelta]:
    return [number * SECOND for number in numbers]


def test_the_resolver_looks_at_a_task_for_its_missing_effects_and_again_when_it_is_due() -> None:
    resolving = Resolving(LookResult(NOW + MINUTE), DONE)
    resolving.owe()
    assert resolving.pass_by(HOUR) == [0 * SECOND, MINUTE]
    assert [bool(look.owed) for _, look in resolving.looks] == [True, False]
    assert resolving.ledger.in_memory() == 0


def test_while_the_broker_is_away_the_waits_between_looks_grow_but_a_due_task_is_looked_at() -> None:
    away = LookResult(NOW + 5 * SECOND, is_complete=False, is_published=False)
    resolving = Resolving(away, away, away, LookResult(NOW + HOUR, is_complete=False), BrokerAway())
    resolving.owe()
    assert resolving.pass_by(MINUTE) == seconds(0, 2, 4, 5, 10, 20, 40)
    assert [look.is_due for _, look in resolving.looks] == [False] * 3 + [True] + [False] * 3


@pytest.mark.parametrize("is_away", [True, False])
def test_a_marked_task_is_read_again_only_when_the_broker_is_back(is_away: bool) -> None:
    """When a task is marked, everything except its events has been done."""
    marked = LookResult(NOW + 30 * SECOND, is_complete=False, is_published=False, is_marked=True)
    resolving = Resolving(marked, LookResult(NOW + HOUR, is_complete=False, is_marked=True), DONE)
    resolving.owe()
    resolving.is_away = is_away
    times = resolving.pass_by(MINUTE)
    assert times == (seconds(0, 30) if is_away else seconds(0, 2, 4, 30))
    resolving.is_away = False
    resolving.pass_by(HOUR)
    assert resolving.ledger.in_memory() == 0


def test_a_look_that_fails_is_retried_with_growing_delays_and_then_abandoned(logs: Logs) -> None:
    resolving = Resolving(ValueError("a defect"))
    resolving.owe()
    resolving.pass_by(HOUR)
    assert resolving.waits == [min(2**tries, 120) * SECOND for tries in range(10)]
    assert resolving.ledger.in_memory() == 0
    assert [entry["event"] for entry in logs] == ["look-failed"] * 11 + ["look-abandoned"]


def test_while_storage_is_away_a_look_is_retried_every_two_seconds_and_never_abandoned() -> None:
    resolving = Resolving(*[ServiceUnavailable("away")] * 20, DONE)
    resolving.owe()
    resolving.ledger.note_due(TASK_ID, NOW, 1)
    resolving.pass_by(HOUR)
    assert resolving.waits == seconds(*[2] * 20)
    assert [bool(look.owed) and look.is_due for _, look in resolving.looks] == [True] * 21
    assert resolving.ledger.in_memory() == 0


def test_a_task_whose_row_is_corrupt_is_looked_at_only_once() -> None:
    resolving = Resolving(Corrupt("the row cannot be read"))
    resolving.owe()
    assert resolving.pass_by(HOUR) == [0 * SECOND]
    assert resolving.ledger.in_memory() == 0


@pytest.mark.parametrize("group", [GROUP, ""])
def test_a_missing_task_is_awaited_for_25_seconds_and_then_leaves_its_group(group: str) -> None:
    """Before it leaves, the row of the process names it, so that it is not lost if the process dies."""
    resolving = Resolving(MISSING)
    resolving.owe(group)
    assert resolving.pass_by(HOUR) == seconds(0, 25)
    named_and_left = [f"{TASK_ID} is named", f"{TASK_ID} leaves {group}"]
    assert resolving.done == (named_and_left if group else [])
    assert resolving.ledger.in_memory() == 0


def test_a_missing_task_that_was_due_has_expired_and_is_not_looked_at_again() -> None:
    resolving = Resolving(MISSING)
    resolving.ledger.note_due(TASK_ID, NOW, 1)
    resolving.ledger.fire()
    assert resolving.pass_by(HOUR) == [0 * SECOND]


def test_the_more_tasks_wait_the_fewer_pauses_the_resolver_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving, stop = Resolving(DONE), Event()
    pauses = [0]  # the number of looks before each pause

    def pause() -> None:
        pauses.append(len(resolving.looks))
        if not resolving.ledger.ready:
            stop.set()

    monkeypatch.setattr(resolver, "let_others_run", pause)
    for _ in range(100):
        resolving.owe(task_id=slugid())
    resolving.resolver.run(stop, BackgroundGate())
    assert pauses[-1] == 100
    at_once = [later - earlier for earlier, later in itertools.pairwise(pauses)]
    assert at_once == sorted(at_once, reverse=True)
    assert (at_once[0], at_once[-1]) == (11, 1)


def test_a_waiting_resolver_can_be_woken_and_stopped() -> None:
    resolving, stop = Resolving(DONE), Event()
    resolving.owe()
    thread = Thread(target=resolving.resolver.run, args=[stop, BackgroundGate()], daemon=True)
    thread.start()
    resolving.resolver.end_waits()
    wait_until(lambda: resolving.ledger.late() == 0)
    assert thread.is_alive()
    stop.set()
    resolving.resolver.end_waits()
    thread.join(60)
    assert not thread.is_alive()


# several processes on one storage


def work(server: Services) -> None:
    server.processes.read_others()
    server.tick()
    server.resolver.handle_all()


@pytest.mark.parametrize("behind", [-60, 5, 21, 60])
def test_the_call_of_a_process_with_a_wrong_clock_is_not_taken_for_one_of_a_dead_process(
    harness: Harness, behind: int
) -> None:
    """Another process looks before createTask has written the task, and must not remove it from its group."""
    other = harness.replica()
    look = FaultAt(0, of="insert", before=lambda: work(other))
    slow = harness.replica(look, clock=FakeClock(NOW - behind * SECOND))
    group = slugid()
    slow.tasks.create(TASK_ID, task_body(NOW, taskGroupId=group))
    assert [active.task_id for active in harness.storage.groups.all_active("", 10)[0]] == [TASK_ID]
    harness.events()
    harness.clock.advance(SECOND)
    work(other)
    assert harness.events() == []
