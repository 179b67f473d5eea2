"""Runs a scenario in real time with short claims, and replays it on a clock that is moved.

In real time, calls keep a distance from whatever becomes due, and wait until its effects are there. Where a
busy machine delays a call until something is due, the order of the two is not known: the scenario ends there.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.adapters.clock import MovableClock
from legacy_queue.domain.timer import next_due
from legacy_queue.domain.times import to_milliseconds
from tests.memory_server import FakeClock
from tests.services.harness import NOW, SECOND
from tests.services.scenarios import CLAIM, NO_TIME, Calls, Scenario, Server, Step

GAP = timedelta(seconds=0.15)  # between a call and what becomes due after it
LOOK_EVERY = 0.01  # seconds: at what is under way


@dataclass(frozen=True)
class Run:
    """``times`` of the calls that were made, ``outcome`` is None where the scenario ended early."""

    times: list[datetime]
    answers: list[Any]
    outcome: Any


class OrderUnknown(Exception):
    """The order of two events is unknown."""


class RealTime:
    """Makes the calls of a scenario on a server whose threads run, at the times that they are planned for."""

    def __init__(self, server: Server, scenario: Scenario) -> None:
        self._server, self._clock, self._scenario = server, server.clock, scenario
        self._calls = Calls(server, scenario.tasks, lambda: NO_TIME)

    def run(self) -> Run:
        times: list[datetime] = []
        answers: list[Any] = []
        try:
            for step in self._scenario.steps:
                dues = self._pass_time(self._clock.now() + step.pause * self._server.unit, step)
                time_of_call = self._clock.now()
                answer = self._calls.make(step)
                self._wait_for_effects()
                self._check_order(time_of_call, [*dues, *self._dues()], step)
                times.append(max(time_of_call, self._timed_from(step, answer) or time_of_call))
                answers.append(answer)
            while dues := self._dues():
                self._pass_time(max(dues))
            return Run(times, answers, self._calls.outcome())
        except OrderUnknown:
            return Run(times, answers, None)

    def _timed_from(self, step: Step, answer: Any) -> datetime | None:
        """The time to which a call has added the deadline or the claim: some time after its beginning."""
        unit = self._server.unit
        if step.call == "create" and (created := self._calls.task(step.task)):
            return created.definition.deadline - self._scenario.tasks[step.task].deadline * unit
        match answer:
            case (int(number), *_) if claimed := self._calls.task(number):
                taken_until = claimed.runs[-1].taken_until
                return taken_until - CLAIM * unit if taken_until else None
        return None

    def _pass_time(self, until: datetime, step: Step | None = None) -> list[datetime]:
        """Wait for that time, or for one soon after it at which nothing is due; what is due after it."""
        while True:
            for start, end in sorted(self._closed(step)):
                if start - GAP <= until <= end:
                    until = end + timedelta(milliseconds=1)
            dues = self._dues()
            if not dues or dues[0] > until:
                self._sleep_until(until)
                return dues
            self._sleep_until(dues[0])
            applied_at = self._wait_for_effects()
            if any(one <= applied_at for one in dues[1:]):
                raise OrderUnknown

    def _check_order(self, begun: datetime, dues: Sequence[datetime], step: Step) -> None:
        """All effects of the call at that time are applied. Nothing may have become due meanwhile."""
        now = self._clock.now()
        if any(due <= now for due in dues) or any(
            start <= now and begun <= end for start, end in self._closed(step)
        ):
            raise OrderUnknown

    def _dues(self) -> list[datetime]:
        """When claims and tasks end, the next first."""
        return sorted(
            time
            for task in self._calls.tasks()
            if not task.is_resolved
            for time in {next_due(task), task.definition.deadline}
            if time
        )

    def _closed(self, step: Step | None) -> list[tuple[datetime, datetime]]:
        """When the step is not made: while what it may do depends on less than a second."""
        closed = [(one, one) for one in self._dues()]
        if step and step.call == "poll":
            deadlines = [task.definition.deadline for task in self._calls.tasks()]
            closed += self._calls.visible_again
            # a message goes up to a second before the deadline: in a replay, a second may be a unit
            closed += [(one - 1.1 * self._server.unit, one) for one in deadlines]
        return closed

    def _wait_for_effects(self) -> datetime:
        """Wait until all effects are there of what is due or was called; when that was."""
        while any(self._is_unfinished(task_id) for task_id in self._calls.ids):
            time.sleep(LOOK_EVERY)
        return self._clock.now()

    def _is_unfinished(self, task_id: str) -> bool:
        if self._server.services.timers.is_unfinished(task_id):
            return True
        stored = self._server.storage.tasks.load(task_id)
        due = next_due(stored.task) if stored else None
        return due is not None and due <= self._clock.now()

    def _sleep_until(self, until: datetime) -> None:
        time.sleep(max(0.0, (until - self._clock.now()).total_seconds()))


def replayed(scenario: Scenario, real: Run, unit: timedelta) -> tuple[Run, list[datetime]]:
    """The same calls on a clock that is moved; and each time in the tasks at which nothing was to happen.

    ``unit`` is that of the real run.
    """
    clock = MovableClock(FakeClock(NOW))
    server = Server(clock, scenario.claim * SECOND)
    control = server.services.clock_control()
    calls = Calls(server, scenario.tasks, lambda: clock.now() - clock.wall_time())
    background = server.services.background() if scenario.has_threads else None
    if background:
        background.start()
    try:
        answers = []
        times = [to_milliseconds(NOW + (one - real.times[0]) * (server.unit / unit)) for one in real.times]
        for when, step in zip(times, scenario.steps, strict=False):
            control.advance(when - clock.now())
            answers.append(calls.make(step))
        if real.outcome is None:
            return Run(times, answers, None), []
        control.advance(100 * server.unit)
        named = [
            one
            for task in calls.tasks()
            for run in task.runs
            for one in (run.scheduled, run.started, run.resolved)
            if one
        ]
        dues = [
            one
            for task in calls.tasks()
            for one in (task.definition.deadline, *(run.taken_until for run in task.runs))
        ]
        return Run(times, answers, calls.outcome()), [one for one in named if one not in (*times, *dues)]
    finally:
        if background:
            background.stop()
