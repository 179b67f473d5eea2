"""``GET /migration``: the protocol of each caller, and whether a worker type can leave the old protocol.

It names clients and workers, so it needs a scope of its own: ``queue:migration``.
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
    """For each worker type, the callers of pollTaskUrls, claimTask and claimWork in the last ``since``
    (``24h``), and which steps of the migration their calls prevent. A call counts if its scopes allow it,
    whatever its answer. A caller is listed with all its calls since ``first``.
    """
    services = call.authorize()
    window = _window(call.query.get("since", "24h"))
    report = services.usage.report(window, call.query.get("provisionerId"), call.query.get("workerType"))
    for pool in report["workerTypes"]:
        pool["policy"] = services.claims.policy(pool["provisionerId"], pool["workerType"])
    return report


def _window(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text, re.ASCII)
    window = int(match[1]) * _UNITS[match[2]] if match else timedelta(0)
    if not HOUR <= window <= KEPT:
        raise InvalidRequestArguments(
            f"since is {text!r}: a duration from 1h to {KEPT.days}d is accepted, like 90m, 24h or 2d"
        )
    return window
