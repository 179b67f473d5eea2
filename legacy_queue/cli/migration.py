"""legacy-queue migration: which protocol each caller uses, and which pools can move to a newer one."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click

from legacy_queue.cli.queue_options import AnswerAndText, QueueCommand, pool_option, reporting
from legacy_queue.cli.tables import table
from legacy_queue.config.values import Value, matching
from legacy_queue.queue_client import QueueClient

_WHOLE = 3  # parts of a claim's proof: messageId, receipt and signature
_FULL, _NO_SIGNATURE, _NO_RECEIPT, _NO_PROOF = "FULL PROOF", "NO SIGNATURE", "NO ID/RECEIPT", "NO PROOF"
_TODAYS = "CLAIMWORK TODAY"
_COLUMNS = {
    "pollTaskUrls": "URLS",
    "claimTask": _FULL,
    "claimWork": "CLAIMWORK 2018",
    "claimWork by taskQueueId": _TODAYS,
}
_COUNTED = ("URLS", _FULL, _NO_SIGNATURE, _NO_RECEIPT, _NO_PROOF, "CLAIMWORK 2018", _TODAYS)
_MAX_NAMES = 10  # of workers that still have to move
_HEADS = ("POOL", "CAN REQUIRE PROOF", "READY FOR CLAIMWORK", *_COUNTED)


@click.command(cls=QueueCommand)
@reporting
@click.option("--since", default="24h", metavar="DURATION", help="How far back to look: 1h to 10d.")
@pool_option
@click.option(
    "--dry-run",
    type=Value("required, the name of the policy", matching("required", "").parse, ("required",)),
    metavar="required",
    help="Count the claims that this policy would have refused.",
)
def migration(queue: QueueClient, since: str, pool: str | None, dry_run: str | None) -> AnswerAndText:
    """Report which pools can move to a newer protocol, and which workers keep the other pools from moving.

    The credentials need the scope queue:migration. A caller is listed, with all its recorded calls, if it
    asked for work within --since. A call is recorded about ten seconds after it was made.

    \b
    - CAN REQUIRE PROOF: yes if the policy of the pool can be set to required
    - READY FOR CLAIMWORK: yes if workers called claimWork, and none of them
      polled, called pollTaskUrls or called claimTask
    - URLS: calls of pollTaskUrls
    - FULL PROOF: claims with the messageId, receipt and signature
    - NO SIGNATURE: claims without the signature, but with one of the others
    - NO ID/RECEIPT: claims with the signature, but without one of the others
    - NO PROOF: claims without all three
    - CLAIMWORK 2018: calls of claimWork that name provisionerId and workerType
    - CLAIMWORK TODAY: calls of claimWork that name a taskQueueId (since 2020)

    Below the table you see what blocks each pool, and up to ten workers that still have to move; --json lists
    all of them. Then follow the reads that only the setting anonymous-scopes allows.
    """  # noqa: D301 - click must see the character \b, which keeps the lines of the list
    provisioner_id, worker_type = pool.split("/") if pool else (None, None)
    query: dict[str, Any] = {"since": since, "provisionerId": provisioner_id, "workerType": worker_type}
    report = queue.call("GET", "/migration", expected="workerTypes", **query)
    if dry_run:
        shown = _dry_run(report)
        return shown, "\n".join(_refusals(shown))
    return report, "\n".join(_summary(report))


def _dry_run(report: Any) -> dict[str, Any]:
    """The claims that the policy ``required`` would refuse."""
    claims = [
        {"provisionerId": pool["provisionerId"], "workerType": pool["workerType"], **call}
        for pool in report["workerTypes"]
        for call in _claims(pool)
    ]
    refused = [claim for claim in claims if claim["missing"]]
    rest = {name: value for name, value in report.items() if name not in ("workerTypes", "reads")}
    return {**rest, "claims": _count(claims), "refused": _count(refused), "by": refused}


def _refusals(shown: Mapping[str, Any]) -> Iterable[str]:
    yield f"The policy required would have refused {shown['refused'] or 'none'} of {shown['claims']} claims."
    yield f"This counts only workers that claimed from {shown['since']} to {shown['until']}."
    yield from _caveats(shown)
    if shown["by"]:
        yield ""
        rows = [
            (_pool(claim), claim["caller"], str(claim["count"]), ", ".join(claim["missing"]), claim["last"])
            for claim in shown["by"]
        ]
        yield table(("POOL", "WORKER", "REFUSED", "MISSING", "LAST"), rows, "")


def _summary(report: Any) -> Iterable[str]:
    pools = report["workerTypes"]
    if pools:
        ready = sum(pool["claimWork"]["ready"] for pool in pools)
        yield f"{ready} of {len(pools)} pools are ready for claimWork."
    yield f"Callers from {report['since']} to {report['until']}, with all their recorded calls:"
    yield from _caveats(report)
    yield ""
    nothing = "No worker called pollTaskUrls, claimTask or claimWork."
    yield table(_HEADS, map(_row, pools), nothing)
    for pool in pools:
        against = [f"  proof:     {why}" for why in _blockers(pool["required"]) if _claims(pool)]
        against += [f"  claimWork: {why}" for why in _blockers(pool["claimWork"])]
        if against:
            yield from (f"\n{_pool(pool)} is blocked by:", *against)
        to_be_moved = pool["claimWork"]["toBeMoved"]
        if to_be_moved and any(call["method"].startswith("claimWork") for call in pool["calls"]):
            more = f" and {len(to_be_moved) - _MAX_NAMES} more" if len(to_be_moved) > _MAX_NAMES else ""
            yield f"  still to move: {', '.join(to_be_moved[:_MAX_NAMES])}{more}"
    if report.get("reads"):
        yield "\nThese reads work only because of the setting anonymous-scopes:"
        yield table(("CLIENT", "CALL", "READS", "LAST", "MISSING"), map(_read_row, report["reads"]), "")


def _blockers(move: Mapping[str, Any]) -> Any:
    return move.get("blockers", move.get("inTheWay"))  # the second is the name of 0.1.0


def _read_row(read: Any) -> tuple[str, ...]:
    client = read["caller"] or "no credentials"
    return client, read["method"], str(read["count"]), read["last"], ", ".join(read["missing"])


def _caveats(report: Any) -> Iterable[str]:
    """What the report cannot show."""
    if "recordedSince" not in report:
        yield "Nothing is recorded yet: earlier callers are unknown."
    elif report["recordedSince"] > report["since"]:
        yield f"Nothing was recorded before {report['recordedSince']}: earlier callers are unknown."


def _row(pool: Any) -> tuple[str, ...]:
    counts = Counter[str]()
    for call in pool["calls"]:
        counts[_head(call)] += call["count"]
    required = "yes" if pool["required"]["possible"] else "not yet"
    if pool["policy"] == "required":
        required = "in force"
    elif not _claims(pool):
        required = "-"
    ready = "yes" if pool["claimWork"]["ready"] else "not yet"
    return (_pool(pool), required, ready, *(str(counts[head] or "-") for head in _COUNTED))


def _claims(pool: Any) -> list[Any]:
    return [call for call in pool["calls"] if call["method"] == "claimTask"]


def _count(calls: Iterable[Any]) -> int:
    return sum(call["count"] for call in calls)


def _head(call: Mapping[str, Any]) -> str:
    """The column that counts the call."""
    missing = call["missing"]
    if not missing:
        return _COLUMNS.get(call["method"], "")
    if len(missing) == _WHOLE:
        return _NO_PROOF
    return _NO_SIGNATURE if "signature" in missing else _NO_RECEIPT


def _pool(pool: Any) -> str:
    return f"{pool['provisionerId']}/{pool['workerType']}"
