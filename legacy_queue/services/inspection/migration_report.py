"""Reports the calls for each pool, and which of them block the policy ``required`` and a move to claimWork.

It also reports the reads that only the anonymous role allows. A caller is ``workerGroup/workerId``. For
pollTaskUrls, polls and reads it is the clientId. Source: docs/explanation/protocols.md.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import Any, NamedTuple

from legacy_queue.domain.call_statistics import (
    CLAIM_TASK,
    CLAIM_WORK,
    METHODS,
    POLL,
    POLL_TASK_URLS,
    READERS,
    TODAYS_CLAIM_WORK,
    Caller,
    Calls,
)
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Clock
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.workers.recorded_calls import RecordedCalls

_OLD = POLL_TASK_URLS, POLL, CLAIM_TASK
_NEW = CLAIM_WORK, TODAYS_CLAIM_WORK
HOUR = timedelta(hours=1)
_MAX_NAMES = 3  # in a sentence


class CallsOfCaller(NamedTuple):
    """The calls of one method by one caller. ``missing`` are the fields that its claimTask leaves out."""

    method: str
    missing: tuple[str, ...]
    caller: str
    calls: Calls


class MigrationReport:
    """The answer of ``GET /migration``."""

    def __init__(self, calls: RecordedCalls, clock: Clock, settings: ServiceSettings) -> None:
        self._calls = calls
        self._clock = clock
        self._settings = settings

    def report(
        self, window: timedelta, provisioner_id: str | None = None, worker_type: str | None = None
    ) -> dict[str, Any]:
        """Returns the calls in the ``window`` up to now, and the policy of each pool: see
        ``protocols_in_use``.

        None means any provisionerId or workerType. Raises ServiceUnavailable.
        """
        until = self._clock.now()
        since = until - window
        callers = self._calls.callers_since(since - HOUR, provisioner_id, worker_type)
        found = protocols_in_use(callers, since, until)
        for pool in found["workerTypes"]:
            pool["policy"] = self._settings.policy(pool["provisionerId"], pool["workerType"])
        return found


def protocols_in_use(callers: Iterable[Caller], since: datetime, until: datetime) -> dict[str, Any]:
    """Returns the body of ``GET /migration`` without the policies: by pool, the callers and what they block.

    - A caller counts if its last call was between ``since`` and ``until``. Then all its calls since ``first``
      count.
    - ``reads`` are the reads that the scopes of their callers do not allow. ``missing`` are those scopes.
    - ``recordedSince`` is the time of the first call on record, but not before ``since``. Without a call it
      is missing.
    """
    begins = []
    pools: dict[tuple[str, str], list[CallsOfCaller]] = defaultdict(list)
    reads: list[CallsOfCaller] = []
    for caller in callers:
        pool = caller.provisioner_id, caller.worker_type
        for (method, missing), calls in caller.statistics.calls.items():
            use = CallsOfCaller(method, missing, caller.name, calls)
            if pool != READERS:
                begins.append(max(since, calls.first))
            if calls.last >= since:
                (reads if pool == READERS else pools[pool]).append(use)
    times = {"since": since, "until": until, "recordedSince": min(begins, default=None)}
    return {
        **{name: format_time(time) for name, time in times.items() if time},
        "workerTypes": [_worker_type(pool, uses) for pool, uses in sorted(pools.items())],
        "reads": [_wire(use) for use in sorted(reads, key=lambda use: (use.caller, use.method))],
    }


def _worker_type(pool: tuple[str, str], uses: Sequence[CallsOfCaller]) -> dict[str, Any]:
    """The calls for the pool, the most recent first, and what they block."""
    last_first = sorted(uses, key=lambda use: (use.calls.last, use.caller), reverse=True)
    of = {method: [use for use in last_first if use.method == method] for method in METHODS}
    return {
        "provisionerId": pool[0],
        "workerType": pool[1],
        "calls": [_wire(use) for use in last_first],
        "required": _required(of[CLAIM_TASK]),
        "claimWork": _claim_work(of),
    }


def _wire(use: CallsOfCaller) -> dict[str, Any]:
    return {
        "method": use.method,
        "missing": list(use.missing),
        "caller": use.caller,
        "count": use.calls.count,
        "first": format_time(use.calls.first),
        "last": format_time(use.calls.last),
    }


def _required(claims: Sequence[CallsOfCaller]) -> dict[str, Any]:
    """Whether the policy can be ``required``, which refuses every claim that lacks a field."""
    refused: dict[tuple[str, ...], list[CallsOfCaller]] = defaultdict(list)
    for use in claims:
        if use.missing:
            refused[use.missing].append(use)
    why = [
        _sentence(refused[missing], f"called claimTask without {', '.join(missing)}")
        for missing in sorted(refused)
    ]
    if not claims:
        why = ["no worker called claimTask, so there is nothing to judge by"]
    count = sum(use.calls.count for use in claims if use.missing)
    return {"possible": not why, **_blockers(why), "refused": count}


def _claim_work(of: Mapping[str, Sequence[CallsOfCaller]]) -> dict[str, Any]:
    """Whether the workers of the pool call only claimWork.

    ``toBeMoved`` are the workers whose last call was claimTask, and the clients of pollTaskUrls and polls.
    """
    why = [
        _sentence(of[method], "polled" if method == POLL else f"called {method}")
        for method in _OLD
        if of[method]
    ]
    moved: dict[str, datetime] = {}
    for use in (use for method in _NEW for use in of[method]):
        moved[use.caller] = max(use.calls.last, moved.get(use.caller, use.calls.last))
    if not moved:
        why.append("no worker called claimWork")
    old = (use for method in _OLD for use in of[method])
    to_be_moved = {use.caller for use in old if moved.get(use.caller, use.calls.last) <= use.calls.last}
    return {"ready": not why, **_blockers(why), "toBeMoved": sorted(to_be_moved)}


def _blockers(sentences: Sequence[str]) -> dict[str, Any]:
    return {"blockers": sentences, "inTheWay": sentences}  # the second is the name of 0.1.0


def _sentence(uses: Sequence[CallsOfCaller], did: str) -> str:
    """``a, b, c and 2 more called claimTask: 14 times, last at 2015-01-22T19:05:57.000Z``."""
    names = list(dict.fromkeys(use.caller for use in uses))
    calls = reduce(Calls.plus, (use.calls for use in uses))
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    times = "once" if calls.count == 1 else f"{calls.count} times, last"
    return f"{', '.join(names[:_MAX_NAMES])}{more} {did}: {times} at {format_time(calls.last)}"
