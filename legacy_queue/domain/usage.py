"""Who calls what for a worker type, and so how far it is from the policy ``required`` and from claimWork.

A caller is ``workerGroup/workerId`` or, where no worker is named (pollTaskUrls), the clientId. Source: the
table at the head of design/protocol.md.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce

from legacy_queue.domain.times import format_time

POLL_TASK_URLS, CLAIM_TASK, CLAIM_WORK = "pollTaskUrls", "claimTask", "claimWork"
_OLD = POLL_TASK_URLS, CLAIM_TASK
METHODS = (*_OLD, CLAIM_WORK)
KEPT = timedelta(days=10)
HOUR = timedelta(hours=1)
_LONGEST_CALLER = 255
_NAMED = 3  # callers, in a sentence
_TASK_CLIENT = re.compile(r"task-client/[^/]+/[^/]+/on/([^/]+/[^/]+)/until/\d+")


@dataclass(frozen=True)
class Use:
    """Somebody's way of calling a method for a worker type; ``missing`` is what a claimTask leaves out."""

    provisioner_id: str
    worker_type: str
    method: str
    caller: str
    missing: tuple[str, ...] = ()

    def is_of(self, provisioner_id: str | None, worker_type: str | None) -> bool:
        """Whether it is for that worker type, None being any; NOT_RECORDED is for all."""
        return self == NOT_RECORDED or (
            provisioner_id in (None, self.provisioner_id) and worker_type in (None, self.worker_type)
        )


NOT_RECORDED = Use("", "", "not recorded", "")  # calls for which there was no room


@dataclass(frozen=True)
class Calls:
    """How many, and when the last one was."""

    count: int
    last: datetime

    def plus(self, other: "Calls") -> "Calls":
        return Calls(self.count + other.count, max(self.last, other.last))


@dataclass(frozen=True)
class CountedUse:
    """What one process has counted of one use in the hour that begins then."""

    process: str
    hour: datetime
    use: Use
    calls: Calls


def beginning_of_hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def client_name(client_id: str) -> str:
    """The clientId, cut; without the task, where it is that of a claim, so that it is one for a worker."""
    return _TASK_CLIENT.sub(r"task-client/*/on/\1", client_id)[:_LONGEST_CALLER]


@dataclass(frozen=True)
class WorkerTypeUse:
    """Who called what for a worker type in a window of time; ``not_recorded`` may be more, of any."""

    provisioner_id: str
    worker_type: str
    uses: Mapping[Use, Calls]
    not_recorded: int = 0

    def of(self, *methods: str) -> dict[Use, Calls]:
        """Those of these methods, the last call first."""
        found = [(use, calls) for use, calls in self.uses.items() if use.method in methods]
        return dict(sorted(found, key=lambda one: (one[1].last, one[0].caller), reverse=True))

    @property
    def refused_if_required(self) -> dict[Use, Calls]:
        """The claims that the policy ``required`` refuses."""
        return {use: calls for use, calls in self.of(CLAIM_TASK).items() if use.missing}

    def against_required(self) -> list[str]:
        """Why the policy should not be ``required`` yet; nothing where every claim presented its message."""
        if not self.of(CLAIM_TASK):
            return ["nobody called claimTask: there is nothing to go by", *self._unknown]
        found, refused = self._unknown, self.refused_if_required
        for missing in sorted({use.missing for use in refused}):
            uses = {use: calls for use, calls in refused.items() if use.missing == missing}
            found.append(_sentence(uses, f"claimTask without {', '.join(missing)}"))
        return found

    def against_claim_work(self) -> list[str]:
        """Why it cannot be said that its workers speak claimWork alone; nothing where they do."""
        found = [_sentence(uses, method) for method in _OLD if (uses := self.of(method))] + self._unknown
        return found if self.of(CLAIM_WORK) else [*found, "nobody called claimWork"]

    @property
    def _unknown(self) -> list[str]:
        sentence = f"{self.not_recorded} calls, perhaps of these workers, are not on record: too many callers"
        return [sentence] if self.not_recorded else []

    @property
    def to_be_moved(self) -> list[str]:
        """The workers that called claimTask and not claimWork since then, and the clients of pollTaskUrls."""
        moved = {use.caller: calls.last for use, calls in self.of(CLAIM_WORK).items()}
        old = self.of(*_OLD).items()
        return sorted({use.caller for use, calls in old if moved.get(use.caller, calls.last) <= calls.last})


@dataclass(frozen=True)
class Report:
    """``recorded_since``: from when on there is anything on record, ``since`` where that is all of the time,
    None where there is nothing at all. ``not_recorded`` calls are in none of ``worker_types``.
    """

    since: datetime
    until: datetime
    recorded_since: datetime | None
    not_recorded: int
    worker_types: Sequence[WorkerTypeUse]


def report(counted: Iterable[CountedUse], since: datetime, until: datetime) -> Report:
    """Who called what in that time, by worker type. Who did not call since then is not in it; of who did,
    all calls of the hour in which it begins count. Those of earlier hours tell that there is a record.
    """
    recorded_since, not_recorded = None, 0
    pools: dict[tuple[str, str], dict[Use, Calls]] = defaultdict(dict)
    for one in counted:
        use, calls = one.use, one.calls
        # when a call was made for the first time in its hour is not known, and so never claimed too early
        first = since if one.hour < beginning_of_hour(since) else max(since, calls.last)
        recorded_since = min(first, recorded_since or first)
        if calls.last < since:
            continue
        if use == NOT_RECORDED:
            not_recorded += calls.count
            continue
        uses = pools[use.provisioner_id, use.worker_type]
        uses[use] = uses[use].plus(calls) if use in uses else calls
    worker_types = [WorkerTypeUse(*pool, uses, not_recorded) for pool, uses in sorted(pools.items())]
    return Report(since, until, recorded_since, not_recorded, worker_types)


def _sentence(uses: Mapping[Use, Calls], call: str) -> str:
    """``a, b, c and 2 more called claimTask: 14 times, last at 2015-01-22T19:05:57.000Z``."""
    names, calls = list(dict.fromkeys(use.caller for use in uses)), reduce(Calls.plus, uses.values())
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    times = "once" if calls.count == 1 else f"{calls.count} times, last"
    return f"{', '.join(names[:_NAMED])}{more} called {call}: {times} at {format_time(calls.last)}"
