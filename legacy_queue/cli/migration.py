"""legacy-queue migration: the protocol of each caller, and which pools can leave the old protocol."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click

from legacy_queue.cli.queue_options import AnswerAndText, pool_option, reporting
from legacy_queue.cli.tables import table
from legacy_queue.queue_client import QueueClient

_WHOLE = 3  # parameters of a message: messageId, receipt and signature
_TODAYS = "today's"
_COUNTED = ("pollTaskUrls", "claimTask", "unsigned", "no receipt", "bare", "claimWork", _TODAYS)
_MAX_NAMES = 10  # of callers that are still to be moved
_HEADS = ("POOL", *_COUNTED, "REQUIRED", "CLAIMWORK")


@click.command()
@reporting
@click.option("--since", default="24h", help="How far back to look: 1h to 10d.")
@pool_option
@click.option(
    "--dry-run",
    type=click.Choice(["required"]),
    help="Count the claims that would have been refused under this policy.",
)
def migration(queue: QueueClient, since: str, pool: str | None, dry_run: str | None) -> AnswerAndText:
    """Show which pools can get the policy required, and which workers call only claimWork.

    A caller counts if it called pollTaskUrls, claimTask or claimWork, or polled, in that time, and then with
    all its calls on record; a call is on record some ten seconds after it. The credentials need the scope
    queue:migration.

    A claimTask counts as such with its messageId, receipt and signature. The columns beside it count claims
    that lack the signature, that lack one of the others, and that lack all three. REQUIRED says whether the
    policy can be required. The column "today's" counts calls of claimWork by clients since 2020, which name a
    taskQueueId. CLAIMWORK is ready if no worker polled or called pollTaskUrls or claimTask in that time,
    and some worker called claimWork. READS are those that the client's own scopes do not allow, and the
    setting anonymous-scopes does. Below the table are the workers that prevent a step; --json names all.
    """
    provisioner_id, worker_type = pool.split("/") if pool else (None, None)
    query: dict[str, Any] = {"since": since, "provisionerId": provisioner_id, "workerType": worker_type}
    report = queue.call("GET", "/migration", expected="workerTypes", **query)
    if dry_run:
        shown = _dry_run(report)
        return shown, "\n".join(_refusals(shown))
    return report, "\n".join(_summary(report))


def _dry_run(report: Any) -> dict[str, Any]:
    """The claims that the policy ``required`` refuses."""
    claims = [
        {"provisionerId": pool["provisionerId"], "workerType": pool["workerType"], **call}
        for pool in report["workerTypes"]
        for call in _claims(pool)
    ]
    refused = [claim for claim in claims if claim["missing"]]
    rest = {name: value for name, value in report.items() if name not in ("workerTypes", "reads")}
    return {**rest, "claims": _count(claims), "refused": _count(refused), "by": refused}


def _refusals(shown: Mapping[str, Any]) -> Iterable[str]:
    claims = f"{shown['refused'] or 'none'} of {shown['claims']} claims would have been refused"
    yield f"Under the policy required, {claims}."
    yield f"They are of the workers that claimed from {shown['since']} to {shown['until']}."
    yield from _caveats(shown)
    if shown["by"]:
        yield ""
        rows = [
            (_pool(claim), claim["caller"], str(claim["count"]), ", ".join(claim["missing"]), claim["last"])
            for claim in shown["by"]
        ]
        yield table(("POOL", "WORKER", "REFUSED", "MISSING", "LAST"), rows, "")


def _summary(report: Any) -> Iterable[str]:
    yield f"Callers from {report['since']} to {report['until']}, with all their calls on record"
    yield from _caveats(report)
    yield ""
    nothing = "No worker called pollTaskUrls, claimTask or claimWork."
    yield table(_HEADS, map(_row, report["workerTypes"]), nothing)
    for pool in report["workerTypes"]:
        against = [f"  required:  {why}" for why in pool["required"]["inTheWay"] if _claims(pool)]
        against += [f"  claimWork: {why}" for why in pool["claimWork"]["inTheWay"]]
        if against:
            yield from (f"\nIn the way of {_pool(pool)}:", *against)
        to_be_moved = pool["claimWork"]["toBeMoved"]
        if to_be_moved and any(call["method"].startswith("claimWork") for call in pool["calls"]):
            more = f" and {len(to_be_moved) - _MAX_NAMES} more" if len(to_be_moved) > _MAX_NAMES else ""
            yield f"  still to be moved: {', '.join(to_be_moved[:_MAX_NAMES])}{more}"
    if report.get("reads"):
        yield "\nOnly anonymous-scopes allow these reads:"
        yield table(("CLIENT", "CALL", "READS", "LAST", "MISSING"), map(_read_row, report["reads"]), "")


def _read_row(read: Any) -> tuple[str, ...]:
    client = read["caller"] or "no credentials"
    return client, read["method"], str(read["count"]), read["last"], ", ".join(read["missing"])


def _caveats(report: Any) -> Iterable[str]:
    """What the record cannot show."""
    if "recordedSince" not in report:
        yield "Nothing is on record: earlier callers are not known."
    elif report["recordedSince"] > report["since"]:
        yield f"Nothing is on record before {report['recordedSince']}: earlier callers are not known."


def _row(pool: Any) -> tuple[str, ...]:
    counts = Counter[str]()
    for call in pool["calls"]:
        counts[_head(call)] += call["count"]
    required = "can be" if pool["required"]["possible"] else "not yet"
    if pool["policy"] == "required":
        required = "in force"
    elif not _claims(pool):
        required = "-"
    ready = "ready" if pool["claimWork"]["ready"] else "not yet"
    return (_pool(pool), *(str(counts[head] or "-") for head in _COUNTED), required, ready)


def _claims(pool: Any) -> list[Any]:
    return [call for call in pool["calls"] if call["method"] == "claimTask"]


def _count(calls: Iterable[Any]) -> int:
    return sum(call["count"] for call in calls)


def _head(call: Mapping[str, Any]) -> str:
    """The column of the call."""
    missing = call["missing"]
    if not missing:
        return _TODAYS if call["method"] == "claimWork by taskQueueId" else str(call["method"])
    if len(missing) == _WHOLE:
        return "bare"
    return "unsigned" if "signature" in missing else "no receipt"


def _pool(pool: Any) -> str:
    return f"{pool['provisionerId']}/{pool['workerType']}"
