"""``GET /migration`` reports which protocol each caller uses, and whether a pool can leave the old one.

Its answer names clients and workers, so it needs a scope of its own: ``queue:migration``.
"""

from contextlib import suppress
from datetime import timedelta

from legacy_queue.domain.call_statistics import CALLS_KEPT
from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.domain.times import parse_duration
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.services.inspection.migration_report import HOUR


@endpoint(
    "GET",
    "/migration",
    "Get Protocols in Use",
    scopes="queue:migration",
    query=("provisionerId", "since", "workerType"),
    output="migration-response",
    has_prefix=False,
)
def migration(call: Call) -> Reply:
    """Get, for each pool, who called pollTaskUrls, claimTask and claimWork, and what prevents a migration.

    A caller is listed if it called within ``since`` (by default ``24h``), with all its calls since ``first``.
    A call counts if its scopes allow it, whatever the answer was. ``reads`` counts the reads that would fail
    without ``anonymous-scopes``.
    """
    migration_report = call.authorize().services.migration_report
    window = _window(call.query.get("since", "24h"))
    return migration_report.report(window, call.query.get("provisionerId"), call.query.get("workerType"))


def _window(text: str) -> timedelta:
    with suppress(ValueError):
        window = parse_duration(text)
        if HOUR <= window <= CALLS_KEPT:
            return window
    raise InvalidRequestArguments(
        f"since is {text!r}: expected a duration from 1h to {CALLS_KEPT.days}d, such as 90m, 24h or 2d"
    )
