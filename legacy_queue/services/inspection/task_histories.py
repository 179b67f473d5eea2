"""Tells what happened to each task, as far as this process has it in memory."""

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.services.events.event_buffer import EventBuffer
from legacy_queue.services.inspection.peeking import Peeking
from legacy_queue.services.inspection.task_history import Moment, task_history

_MAX_CLOCK_MOVES = 1000  # in memory


class TaskHistories:
    """Makes the histories of tasks. ``clock_moves`` are the most recent moves of the clock."""

    def __init__(self, event_buffer: EventBuffer, peeking: Peeking) -> None:
        self._event_buffer = event_buffer
        self._peeking = peeking
        self.clock_moves: deque[Moment] = deque(maxlen=_MAX_CLOCK_MOVES)

    def record_clock_move(self, begin: datetime, what: str, moved_to: datetime, is_frozen: bool) -> None:
        """Keep a move of the clock for the histories of the tasks that it affects."""
        facts = {"movedTo": format_time(moved_to), "frozen": is_frozen}
        self.clock_moves.append(Moment(format_time(begin), what, "clock", facts))

    def of(self, task: Task, requests: Iterable[Mapping[str, Any]] | None) -> list[Moment]:
        """Returns what happened to the task. ``requests`` are the journal's requests about it, if any.

        The events are those that this process has published since its start and still has in memory.
        """
        kept = self._event_buffer.of_task(task.task_id)
        events = [Moment(format_time(event.time), f"{event.exchange} published", "event") for event in kept]
        sees_polls = requests is not None and self._peeking.sees_polls
        return task_history(task, requests or (), events, [*self.clock_moves], sees_polls=sees_polls)
