"""The state of timers in the memory of a process."""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.timer import ArtifactName, Timer

_GRACE = timedelta(seconds=10)  # for the process that keeps a due timer, before others receive it
_MAX_HIDDEN = timedelta(days=6)  # Azure hides a message for a week at most


@dataclass(frozen=True)
class FiredTimer:
    """A fired timer. Effects of transitions after ``since`` are missing; events too, unless ``is_published``.

    ``is_foreign``: another process scheduled it, and may still write the task. ``tries``: how often handling
    it has failed. ``due``: when to advance the task, whatever effects are missing.
    """

    task_id: str
    since: datetime | None
    is_published: bool
    is_foreign: bool
    task_group_id: str
    artifacts: Sequence[ArtifactName]
    tries: int
    due: datetime | None = None


@dataclass(eq=False)
class SharedMessage:
    """``is_open``: a transition may use it without a message of its own. ``task_ids``: its timers."""

    lease: MessageLease
    fires: datetime
    is_open: bool
    task_ids: set[str] = field(default_factory=set)


@dataclass(eq=False)
class State:
    """The state of one timer.

    ``users``: number of calls under way. ``dues``: the due times from calls that ended. ``is_behind``:
    effects are missing, and no call applies them. ``is_unpublished``: events are missing too. ``again``: when
    it fires next. ``is_foreign``: another process scheduled it. ``messages`` together name all missing
    effects; the newest message is the last.
    """

    messages: list[SharedMessage] = field(default_factory=list)
    task_group_id: str = ""
    due: datetime | None = None
    since: datetime | None = None
    users: int = 0
    dues: list[datetime | None] = field(default_factory=list)
    is_behind: bool = False
    is_unpublished: bool = False
    again: datetime | None = None
    is_foreign: bool = False
    tries: int = 0
    artifacts: tuple[ArtifactName, ...] = ()

    @property
    def message(self) -> SharedMessage:
        return self.messages[-1]

    @property
    def is_unfinished(self) -> bool:
        return self.users > 0 or self.is_behind

    def use(self, timer: Timer) -> None:
        """A call begins that may have the effects of the timer."""
        if not self.is_unfinished:
            self.dues.clear()
        self.users += 1
        self.add(timer, timer.due)

    def add(self, timer: Timer, since: datetime) -> None:
        """Effects after ``since`` are missing, and the effects that the timer names."""
        self.since = min(self.since or since, since)
        self.task_group_id = timer.task_group_id or self.task_group_id
        self.artifacts += tuple(name for name in timer.artifacts if name not in self.artifacts)

    def end(self, due: datetime | None) -> bool:
        """A call ends. Returns whether all effects are applied; then ``self.due`` is when it fires next.

        A call does not know what concurrent calls did: the earliest of their due times counts.
        """
        self.users -= 1
        self.dues.append(due)
        if self.is_unfinished:
            return False
        self.since, self.is_unpublished, self.task_group_id, self.artifacts = None, False, "", ()
        self.due = min((due for due in self.dues if due), default=None)
        return True

    def take(self, task_id: str) -> FiredTimer:
        """The fired timer. Its handling begins, as a call does."""
        fired = FiredTimer(
            task_id,
            self.since if self.is_behind else None,
            not self.is_unpublished,
            self.is_foreign,
            self.task_group_id,
            self.artifacts,
            self.tries,
            self.due,
        )
        if not self.users:
            self.dues.clear()
        self.users, self.is_behind = self.users + 1, False
        return fired

    def timer(self, task_id: str, due: datetime) -> Timer:
        """The timer, as it is stored."""
        if self.is_unfinished:
            return Timer(task_id, due, self.since or due, self.task_group_id, self.artifacts)
        return Timer(task_id, due)


class Schedule:
    """Orders the timers by ``again`` of their state. The caller holds a lock."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self._states = states
        self._heap: list[tuple[datetime, int, str]] = []  # may have outdated entries
        self._order = itertools.count()

    def put(self, key: str, when: datetime) -> None:
        """The timer fires at ``when``, and not before."""
        self._states[key].again = when
        if len(self._heap) > 2 * len(self._states):  # most are outdated: of tasks that ended early
            self._heap = [*{entry[2]: entry for entry in self._heap if self._is_current(entry)}.values()]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (when, next(self._order), key))

    def pop_due(self, now: datetime) -> Iterator[str]:
        """Remove and yield the due timers, in the order of their times."""
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_current(entry):
                self._states[entry[2]].again = None
                yield entry[2]

    def next_due(self, end: datetime) -> datetime | None:
        """When the next timer fires, None if it is later than ``end``.

        A timer that failed waits until its task is due, or until ``end``. Otherwise a move of a week would
        try a broker that is away every two seconds of that week.
        """
        while self._heap and self._heap[0][0] <= end:
            when, _, key = self._heap[0]
            if self._is_current(self._heap[0]):
                state = self._states[key]
                later = state.due if state.due and when <= state.due < end else end
                if not state.tries or when == later:
                    return when
                self.put(key, later)
            heapq.heappop(self._heap)
        return None

    def _is_current(self, entry: tuple[datetime, int, str]) -> bool:
        when, _, key = entry
        return key in self._states and self._states[key].again == when


def by_time(timers: Iterable[Timer], now: datetime) -> Iterable[Sequence[Timer]]:
    """Group the timers by when they are due: a group spans at most twice its earliest time from now."""
    groups = defaultdict(list)
    for timer in timers:
        groups[math.log2(max(1.0, (timer.due - now).total_seconds())) // 1].append(timer)
    return groups.values()


def time_hidden(timers: Iterable[Timer], now: datetime, is_kept: bool) -> timedelta:
    """How long to hide a message of waiting timers: until the first is due, longer if it ``is_kept``."""
    grace = _GRACE if is_kept else timedelta(0)
    return min(_MAX_HIDDEN, max(timedelta(0), min(timer.due for timer in timers) - now + grace))
