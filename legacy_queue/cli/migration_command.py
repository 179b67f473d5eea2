"""legacy-queue migration: who still speaks which protocol, and what a worker type is ready for."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import click

from legacy_queue.cli.queue_options import answer_of, pool_options, queue_options, root_of
from legacy_queue.cli.tables import aligned
from legacy_queue.worker import Credentials

_WHOLE = ("messageId", "receipt", "signature")
_TODAYS = "today's"
_COUNTED = ("pollTaskUrls", "claimTask", "unsigned", "no receipt", "bare", "claimWork", _TODAYS)
_NAMED = 10  # of those who are to be moved
_HEADS = ("WORKER TYPE", *_COUNTED, "REQUIRED", "CLAIMWORK")


@click.command()
@queue_options
@click.option("--since", default="24h", show_default=True, help="How far back to look: 1h to 10d.")
@pool_options()
@click.option(
    "--dry-run",
    type=click.Choice(["required"]),
    show_default="none",
    help="Count the claims that would have been refused under this policy.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def migration(
    since: str,
    provisioner: str | None,
    worker_type: str | None,
    dry_run: str | None,
    as_json: bool,
    base_url: str,
    credentials: Credentials,
) -> None:
    """Tell which worker types can be required to present their message, and which speak claimWork alone.

    It goes by who called pollTaskUrls, claimTask and claimWork; a call is seen some ten seconds after it was
    made. The credentials need the scope queue:migration.

    A claimTask counts as such with its messageId, receipt and signature. The columns beside it count claims
    that lack the signature, that lack one of the others, and that lack all three. REQUIRED says whether the
    policy can be, as far as these claims go. Under "today's" are calls of claimWork by clients since 2020,
    which name a taskQueueId. CLAIMWORK is ready once no worker has called pollTaskUrls or claimTask in that
    time, and some worker has called claimWork. Below the table stands what is in the way; --json names all.
    """
    query = {"since": since, "provisionerId": provisioner, "workerType": worker_type}
    shown = report = answer_of(
        "GET", root_of(base_url), "/migration", credentials, "workerTypes", params=query
    )
    if dry_run:
        shown = _dry_run(report)
    if as_json:
        click.echo(json.dumps(shown, indent=2))
    else:
        click.echo("\n".join(_refusals(shown) if dry_run else _summary(report)))


def _dry_run(report: Any) -> dict[str, Any]:
    """The claims that the policy ``required`` refuses."""
    claims = [
        {"provisionerId": one["provisionerId"], "workerType": one["workerType"], **call}
        for one in report["workerTypes"]
        for call in _claims(one)
    ]
    refused = [claim for claim in claims if claim["missing"]]
    count, of_those = (sum(claim["count"] for claim in some) for some in (claims, refused))
    about = {name: value for name, value in report.items() if name != "workerTypes"}
    return {**about, "claims": count, "refused": of_those, "by": refused}


def _refusals(shown: Mapping[str, Any]) -> Iterable[str]:
    of = f"of the {shown['claims']} claims from {shown['since']} to {shown['until']}"
    yield f"Under the policy required, {shown['refused'] or 'none'} {of} would have been refused."
    yield from _caveats(shown)
    if shown["by"]:
        yield ""
        rows = [
            (_pool(one), one["caller"], str(one["count"]), ", ".join(one["missing"]), one["last"])
            for one in shown["by"]
        ]
        yield from aligned([("WORKER TYPE", "WORKER", "REFUSED", "MISSING", "LAST"), *rows])


def _summary(report: Any) -> Iterable[str]:
    yield f"Calls from {report['since']} to {report['until']}"
    yield from _caveats(report)
    yield ""
    if not report["workerTypes"]:
        yield "No worker called pollTaskUrls, claimTask or claimWork."
        return
    yield from aligned([_HEADS, *map(_row, report["workerTypes"])])
    for one in report["workerTypes"]:
        against = [f"  required:  {why}" for why in one["required"]["inTheWay"] if _claims(one)]
        against += [f"  claimWork: {why}" for why in one["claimWork"]["inTheWay"]]
        if against:
            yield from (f"\nIn the way of {_pool(one)}:", *against)
        to_be_moved = one["claimWork"]["toBeMoved"]
        if to_be_moved and any(call["method"].startswith("claimWork") for call in one["calls"]):
            more = f" and {len(to_be_moved) - _NAMED} more" if len(to_be_moved) > _NAMED else ""
            yield f"  still to be moved: {', '.join(to_be_moved[:_NAMED])}{more}"


def _caveats(report: Any) -> Iterable[str]:
    """What the record does not know."""
    if report.get("recordedSince", report["since"]) > report["since"]:
        yield f"Nothing is on record before {report['recordedSince']}: who called earlier is not known."
    if "recordedSince" not in report:
        yield "Nothing is on record: who called earlier is not known."
    if report["notRecorded"]:
        yield f"Calls not on record, of too many callers in an hour: {report['notRecorded']}."


def _row(one: Any) -> tuple[str, ...]:
    counts = Counter[str]()
    for call in one["calls"]:
        counts[_head(call)] += call["count"]
    required = "can be" if one["required"]["possible"] else "not yet"
    if one["policy"] == "required":
        required = "in force"
    elif not _claims(one):
        required = "-"
    ready = "ready" if one["claimWork"]["ready"] else "not yet"
    return (_pool(one), *(str(counts[head] or "-") for head in _COUNTED), required, ready)


def _claims(one: Any) -> list[Any]:
    return [call for call in one["calls"] if call["method"] == "claimTask"]


def _head(call: Mapping[str, Any]) -> str:
    """The column that the call counts in."""
    missing = call["missing"]
    if call["method"] == "claimWork by taskQueueId":
        return _TODAYS
    if not missing:
        return str(call["method"])
    if len(missing) == len(_WHOLE):
        return "bare"
    return "unsigned" if "signature" in missing else "no receipt"


def _pool(one: Mapping[str, Any]) -> str:
    return f"{one['provisionerId']}/{one['workerType']}"
