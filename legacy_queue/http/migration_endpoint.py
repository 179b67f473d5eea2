"""``GET /migration``: who still speaks which protocol, and so what a worker type is ready for.

It names clients and workers, so it takes a scope of its own: ``queue:migration``.
"""

import re
from datetime import timedelta

from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.domain.usage_key import HOUR, KEPT
from legacy_queue.http.endpoint import Answer, Call, endpoint

_UNITS = {"m": timedelta(minutes=1), "h": HOUR, "d": timedelta(days=1)}


@endpoint(
    "GET",
    "/migration",
    "Get Protocols in Use",
    scopes="queue:migration",
    query=("provisionerId", "since", "workerType"),
    output="migration-response",
)
def migration(call: Call) -> Answer:
    """Who called pollTaskUrls, claimTask and claimWork since so long ago (``24h``), and what that stands in
    the way of, for each worker type. All calls count that their scopes allowed, whatever came of them, those
    of the hour in which the time begins too.
    """
    services = call.authorize()
    window = _window(call.query.get("since", "24h"))
    report = services.usage.report(window, call.query.get("provisionerId"), call.query.get("workerType"))
    for one in report["workerTypes"]:
        one["policy"] = services.claims.policy(one["provisionerId"], one["workerType"])
    return report


def _window(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text, re.ASCII)
    window = int(match[1]) * _UNITS[match[2]] if match else timedelta(0)
    if not HOUR <= window <= KEPT:
        raise InvalidRequestArguments(
            f"since is {text!r}: a duration from 1h to {KEPT.days}d is accepted, like 90m, 24h or 2d"
        )
    return window
