"""What a process knows of its timers."""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.timer import ArtifactName, Timer

_LONGEST_HIDDEN = timedelta(days=6)  # Azure hides no message for longer than a week


@dataclass(frozen=True)
class Due:
    """A timer that has fired. Effects of what happened ``since`` are missing, events only if not
    ``is_published``. ``is_foreign``: its process may live, and come to its write yet. ``tries`` is how often
    handling it has failed before. ``due`` is when the task is to be looked at whatever is missing.
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
    """``is_open``: transitions may rely on it. ``task_ids`` are the timers for which it is there."""

    lease: MessageLease
    fires: datetime
    is_open: bool
    task_ids: set[str] = field(default_factory=set)


@dataclass(eq=False)
class State:
    """Of a timer. ``users`` calls are under way, and ``dues`` what those say that have ended.

    ``is_behind``: effects are missing, and no call is at them; ``is_unpublished``: events, too. ``again`` is
    when it fires next, if it does; ``is_foreign``: it was another process's. All that is missing its
    ``messages`` say together; new ones are the last.
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
        """A call is under way that may have the effects of the timer."""
        if not self.is_unfinished:
            self.dues.clear()
        self.users += 1
        self.add(timer, timer.due)

    def add(self, timer: Timer, since: datetime) -> None:
        """Effects since then are missing, and those that the timer names."""
        self.since = min(self.since or since, since)
        self.task_group_id = timer.task_group_id or self.task_group_id
        self.artifacts += tuple(one for one in timer.artifacts if one not in self.artifacts)

    def end(self, due: datetime | None) -> bool:
        """A call has ended; whether nothing is missing now, and ``due`` says when to look again.

        Of several calls at once, none knows what the others did: the earliest of what they say counts.
        """
        self.users -= 1
        self.dues.append(due)
        if self.is_unfinished:
            return False
        self.since, self.is_unpublished, self.task_group_id, self.artifacts = None, False, "", ()
        self.due = min((one for one in self.dues if one), default=None)
        return True

    def take(self, task_id: str) -> Due:
        """Who handles the timer is under way."""
        due = Due(
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
        return due

    def timer(self, task_id: str, due: datetime) -> Timer:
        """What is stored of it."""
        if self.is_unfinished:
            return Timer(task_id, due, self.since or due, self.task_group_id, self.artifacts)
        return Timer(task_id, due)


class Schedule:
    """When which of the timers fires next: at ``again`` of its state. Its caller holds a lock."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self._states = states
        self._heap: list[tuple[datetime, int, str]] = []  # some of it out of date
        self._order = itertools.count()

    def put(self, key: str, when: datetime) -> None:
        """The timer fires then, and not before."""
        self._states[key].again = when
        heapq.heappush(self._heap, (when, next(self._order), key))

    def pop_due(self, now: datetime) -> Iterator[str]:
        """The timers that are due, in the order of their times; they do not fire again."""
        while self._heap and self._heap[0][0] <= now:
            when, _, key = heapq.heappop(self._heap)
            state = self._states.get(key)
            if state and state.again == when:
                state.again = None
                yield key

    def next_due(self, end: datetime) -> datetime | None:
        """When the next timer fires, if it does so by ``end``.

        What failed is put off until its task is due, or to ``end``: else a broker that is away for a week
        would be asked every two seconds of it.
        """
        while self._heap and self._heap[0][0] <= end:
            when, _, key = self._heap[0]
            state = self._states.get(key)
            if state and state.again == when:
                later = state.due if state.due and when <= state.due < end else end
                if not state.tries or when == later:
                    return when
                self.put(key, later)
            heapq.heappop(self._heap)
        return None


def by_time(timers: Iterable[Timer], now: datetime) -> Iterable[Sequence[Timer]]:
    """What is due at about the same time, together: within twice the time from now."""
    groups = defaultdict(list)
    for timer in timers:
        groups[math.log2(max(1.0, (timer.due - now).total_seconds())) // 1].append(timer)
    return groups.values()


def time_hidden(timers: Iterable[Timer], now: datetime, grace: timedelta) -> timedelta:
    """How long a message of these, which wait, is hidden: until the first is due, and the grace more."""
    return min(_LONGEST_HIDDEN, max(timedelta(0), min(one.due for one in timers) - now + grace))
