"""The calls for a worker type, and which of them prevent the policy ``required`` and a move to claimWork.

A caller is ``workerGroup/workerId``, or the clientId for pollTaskUrls. Source: docs/explanation/protocols.md.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from legacy_queue.domain.times import format_time

POLL_TASK_URLS, CLAIM_TASK, CLAIM_WORK = "pollTaskUrls", "claimTask", "claimWork"
_OLD = POLL_TASK_URLS, CLAIM_TASK
TODAYS_CLAIM_WORK = "claimWork by taskQueueId"  # by clients since 2020
_NEW = CLAIM_WORK, TODAYS_CLAIM_WORK
METHODS = (*_OLD, *_NEW)
KEPT = timedelta(days=10)  # after the last call
HOUR = timedelta(hours=1)
_MAX_CALLER = 255  # characters
_MAX_NAMES = 3  # in a sentence
_TASK_CLIENT = re.compile(r"task-client/[^/]+/[^/]+/on/([^/]+/[^/]+)/until/\d+")


@dataclass(frozen=True)
class UsageKey:
    """A way of calling a method for a worker type; ``missing`` are the fields that a claimTask leaves out."""

    provisioner_id: str
    worker_type: str
    method: str
    caller: str
    missing: tuple[str, ...] = ()


NOT_RECORDED = UsageKey("", "", "not recorded", "")  # the calls of too many callers


@dataclass(frozen=True)
class Calls:
    """How many calls, and when the first and the last of them were."""

    count: int
    first: datetime
    last: datetime

    def plus(self, other: "Calls") -> "Calls":
        """The sum of both."""
        return Calls(self.count + other.count, min(self.first, other.first), max(self.last, other.last))


UsageCounts = Mapping[UsageKey, Calls]


def caller_name(caller: str) -> str:
    """The caller, cut. A clientId of a claim loses its task, so that a worker always has the same name."""
    return _TASK_CLIENT.sub(r"task-client/*/on/\1", caller)[:_MAX_CALLER]


def report(recorded: Iterable[tuple[UsageKey, Calls]], since: datetime, until: datetime) -> dict[str, Any]:
    """The callers since then, by worker type, and the moves that their calls prevent: the body of
    ``GET /migration`` without the policies.

    A caller counts if its last call was in that time, and then with all its calls since ``first``.
    ``recordedSince`` says from when on calls are on record, at the earliest ``since``; it is missing if there
    are none. Calls that are ``notRecorded`` are in none of the worker types.
    """
    begins = []
    pools: dict[tuple[str, str], dict[UsageKey, Calls]] = defaultdict(dict)
    for key, calls in recorded:
        begins.append(max(since, calls.first))
        if calls.last >= since:
            counts = pools[key.provisioner_id, key.worker_type]
            counts[key] = calls.plus(counts[key]) if key in counts else calls
    unknown = pools.pop(("", ""), {})
    not_recorded = unknown[NOT_RECORDED].count if unknown else 0
    times = {"since": since, "until": until, "recordedSince": min(begins, default=None)}
    return {
        **{name: format_time(time) for name, time in times.items() if time},
        "notRecorded": not_recorded,
        "workerTypes": [_worker_type(*pool, counts, not_recorded) for pool, counts in sorted(pools.items())],
    }


def _worker_type(
    provisioner_id: str, worker_type: str, counts: UsageCounts, not_recorded: int
) -> dict[str, Any]:
    """The calls for the worker type, the last call first, and the moves that they prevent."""
    last_first = sorted(counts.items(), key=lambda item: (item[1].last, item[0].caller), reverse=True)
    of = {method: {key: calls for key, calls in last_first if key.method == method} for method in METHODS}
    sentence = f"calls not on record, of too many callers, perhaps of these workers: {not_recorded}"
    unknown = [sentence] if not_recorded else []
    return {
        "provisionerId": provisioner_id,
        "workerType": worker_type,
        "calls": [
            {
                "method": key.method,
                "missing": list(key.missing),
                "caller": key.caller,
                "count": calls.count,
                "first": format_time(calls.first),
                "last": format_time(calls.last),
            }
            for key, calls in last_first
        ],
        "required": _required(of[CLAIM_TASK], unknown),
        "claimWork": _claim_work(of, unknown),
    }


def _required(claims: UsageCounts, unknown: list[str]) -> dict[str, Any]:
    """Whether the policy can be ``required``, which refuses every claim with a missing field."""
    refused: dict[tuple[str, ...], dict[UsageKey, Calls]] = defaultdict(dict)
    for key, calls in claims.items():
        if key.missing:
            refused[key.missing][key] = calls
    why = [
        _sentence(counts, f"claimTask without {', '.join(missing)}")
        for missing, counts in sorted(refused.items())
    ]
    if not claims:
        why = ["no worker called claimTask: there is nothing to judge by"]
    count = sum(calls.count for counts in refused.values() for calls in counts.values())
    return {"possible": not (why or unknown), "inTheWay": [*why, *unknown], "refused": count}


def _claim_work(of: Mapping[str, UsageCounts], unknown: list[str]) -> dict[str, Any]:
    """Whether its workers call only claimWork; ``toBeMoved`` are the workers whose last call was claimTask,
    and the clients of pollTaskUrls.
    """
    why = [_sentence(of[method], method) for method in _OLD if of[method]] + unknown
    claims = [item for method in _NEW for item in of[method].items()]
    if not claims:
        why.append("no worker called claimWork")
    moved: dict[str, datetime] = {}
    for key, calls in claims:
        moved[key.caller] = max(calls.last, moved.get(key.caller, calls.last))
    old = [(key.caller, calls.last) for method in _OLD for key, calls in of[method].items()]
    to_be_moved = {caller for caller, last in old if moved.get(caller, last) <= last}
    return {"ready": not why, "inTheWay": why, "toBeMoved": sorted(to_be_moved)}


def _sentence(counts: UsageCounts, call: str) -> str:
    """``a, b, c and 2 more called claimTask: 14 times, last at 2015-01-22T19:05:57.000Z``."""
    names, calls = list(dict.fromkeys(key.caller for key in counts)), reduce(Calls.plus, counts.values())
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    times = "once" if calls.count == 1 else f"{calls.count} times, last"
    return f"{', '.join(names[:_MAX_NAMES])}{more} called {call}: {times} at {format_time(calls.last)}"
