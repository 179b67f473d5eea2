"""Who calls what for a worker type, and so how far it is from the policy ``required`` and from claimWork.

A caller is ``workerGroup/workerId`` or, of pollTaskUrls, the clientId. Source: docs/explanation/protocols.md.
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
TODAYS_CLAIM_WORK = "claimWork by taskQueueId"  # as clients since 2020 call it
_NEW = CLAIM_WORK, TODAYS_CLAIM_WORK
METHODS = (*_OLD, *_NEW)
KEPT = timedelta(days=10)
HOUR = timedelta(hours=1)
_LONGEST_CALLER = 255
_NAMED = 3  # callers, in a sentence
_TASK_CLIENT = re.compile(r"task-client/[^/]+/[^/]+/on/([^/]+/[^/]+)/until/\d+")


@dataclass(frozen=True)
class UsageKey:
    """Somebody's way of calling a method for a worker type; ``missing`` is what a claimTask leaves out."""

    provisioner_id: str
    worker_type: str
    method: str
    caller: str
    missing: tuple[str, ...] = ()


NOT_RECORDED = UsageKey("", "", "not recorded", "")  # calls for which there was no room


@dataclass(frozen=True)
class Calls:
    """How many, and when the last one was."""

    count: int
    last: datetime

    def plus(self, other: "Calls") -> "Calls":
        return Calls(self.count + other.count, max(self.last, other.last))


UsageCounts = Mapping[UsageKey, Calls]


@dataclass(frozen=True)
class CountedUsage:
    """What a process has counted of one use in the hour that begins then."""

    hour: datetime
    use: UsageKey
    calls: Calls


def beginning_of_hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def client_name(client_id: str) -> str:
    """The clientId, cut; without the task, where it is that of a claim, so that it is one for a worker."""
    return _TASK_CLIENT.sub(r"task-client/*/on/\1", client_id)[:_LONGEST_CALLER]


def report(counted: Iterable[CountedUsage], since: datetime, until: datetime) -> dict[str, Any]:
    """Who called what in that time, by worker type, and what that stands in the way of: the body of
    ``GET /migration``, but for the policies.

    Who did not call since then is not in it; of who did, all calls of the hour in which it begins count.
    ``recordedSince`` is from when on there is anything on record, ``since`` where that is all of the time;
    calls of earlier hours tell that there is. Without it, nothing is. Calls that are ``notRecorded`` are in
    none of the worker types.
    """
    recorded_since, nothing = None, Calls(0, since)
    pools: dict[tuple[str, str], dict[UsageKey, Calls]] = defaultdict(dict)
    for one in counted:
        use, calls = one.use, one.calls
        # when a call was made for the first time in its hour is not known, and so never claimed too early
        first = since if one.hour < beginning_of_hour(since) else max(since, calls.last)
        recorded_since = min(first, recorded_since or first)
        if calls.last >= since:
            uses = pools[use.provisioner_id, use.worker_type]
            uses[use] = calls.plus(uses.get(use, nothing))
    not_recorded = pools.pop(("", ""), {}).get(NOT_RECORDED, nothing).count
    times = {"since": since, "until": until, "recordedSince": recorded_since}
    return {
        **{name: format_time(time) for name, time in times.items() if time},
        "notRecorded": not_recorded,
        "workerTypes": [_worker_type(*pool, uses, not_recorded) for pool, uses in sorted(pools.items())],
    }


def _worker_type(
    provisioner_id: str, worker_type: str, uses: UsageCounts, not_recorded: int
) -> dict[str, Any]:
    """Its calls, the last one first, and what they stand in the way of, as calls not on record do."""
    last_first = sorted(uses.items(), key=lambda one: (one[1].last, one[0].caller), reverse=True)
    of = {method: {use: calls for use, calls in last_first if use.method == method} for method in METHODS}
    sentence = f"calls not on record, of too many callers, perhaps of these workers: {not_recorded}"
    unknown = [sentence] if not_recorded else []
    return {
        "provisionerId": provisioner_id,
        "workerType": worker_type,
        "calls": [
            {
                "method": use.method,
                "missing": list(use.missing),
                "caller": use.caller,
                "count": calls.count,
                "last": format_time(calls.last),
            }
            for use, calls in last_first
        ],
        "required": _required(of[CLAIM_TASK], unknown),
        "claimWork": _claim_work(of, unknown),
    }


def _required(claims: UsageCounts, unknown: list[str]) -> dict[str, Any]:
    """Whether the policy can be ``required``: it refuses the claims that leave something out."""
    refused: dict[tuple[str, ...], dict[UsageKey, Calls]] = defaultdict(dict)
    for use, calls in claims.items():
        if use.missing:
            refused[use.missing][use] = calls
    why = [
        _sentence(uses, f"claimTask without {', '.join(missing)}")
        for missing, uses in sorted(refused.items())
    ]
    if not claims:
        why = ["nobody called claimTask: there is nothing to go by"]
    count = sum(calls.count for uses in refused.values() for calls in uses.values())
    return {"possible": not (why or unknown), "inTheWay": [*why, *unknown], "refused": count}


def _claim_work(of: Mapping[str, UsageCounts], unknown: list[str]) -> dict[str, Any]:
    """Whether its workers speak claimWork alone; ``toBeMoved`` are those that called claimTask and not
    claimWork since then, and the clients of pollTaskUrls.
    """
    why = [_sentence(of[method], method) for method in _OLD if of[method]] + unknown
    claims = [one for method in _NEW for one in of[method].items()]
    if not claims:
        why.append("nobody called claimWork")
    moved: dict[str, datetime] = {}
    for use, calls in claims:
        moved[use.caller] = max(calls.last, moved.get(use.caller, calls.last))
    old = [(use.caller, calls.last) for method in _OLD for use, calls in of[method].items()]
    to_be_moved = {caller for caller, last in old if moved.get(caller, last) <= last}
    return {"ready": not why, "inTheWay": why, "toBeMoved": sorted(to_be_moved)}


def _sentence(uses: UsageCounts, call: str) -> str:
    """``a, b, c and 2 more called claimTask: 14 times, last at 2015-01-22T19:05:57.000Z``."""
    names, calls = list(dict.fromkeys(use.caller for use in uses)), reduce(Calls.plus, uses.values())
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    times = "once" if calls.count == 1 else f"{calls.count} times, last"
    return f"{', '.join(names[:_NAMED])}{more} called {call}: {times} at {format_time(calls.last)}"
