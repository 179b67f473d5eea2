"""legacy-queue requests: the last requests to a server that runs with ``--control``."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from legacy_queue.cli.queue_options import CalledQueue, json_option, queue_options
from legacy_queue.cli.tables import aligned
from legacy_queue.domain.times import duration_words, parse_time
from legacy_queue.testing.summary import request_line, requester

_HEADS = ("WHEN", "STATUS", "ENDPOINT", "TASK", "WHO", "MS", "WHY")
_INTERVAL = 0.5  # seconds
_PAGE = 1000


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, _PAGE),
    default=20,
    show_default=True,
    help="How many of the last requests.",
)
@click.option("--follow", is_flag=True, help="Go on with new requests, until SIGTERM or Ctrl-C.")
@queue_options
@json_option
def requests(queue: CalledQueue, as_json: bool, limit: int, follow: bool) -> None:
    """Print the last requests, oldest first, also on signed URLs: status, task, worker, reason of a refusal.

    Requests to /control and event streams are left out. With --json each request is a line.
    """
    last = _requests(queue, limit=limit)
    if as_json or follow:
        for request in _followed(queue, last) if follow else last:
            click.echo(json.dumps(request) if as_json else request_line(request))
    elif last:
        click.echo("\n".join(aligned([_HEADS, *map(_row, last)])))
    else:
        click.echo("There were no requests.")


def _requests(queue: CalledQueue, **query: int) -> Sequence[Mapping[str, Any]]:
    answer = queue.ask("GET", "/control/v1/requests", "requests", params=query)
    entries: Sequence[Mapping[str, Any]] = answer["requests"]
    return entries


def _followed(queue: CalledQueue, last: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """These requests, then each new request, also after a reset."""
    request: Mapping[str, Any] = {"sequence": 1}
    while True:
        for request in last:
            yield request
        time.sleep(_INTERVAL)
        first, *last = _requests(queue, limit=_PAGE, after=request["sequence"] - 1) or [{}]
        if first != request:  # a reset has removed it
            last = _requests(queue, limit=_PAGE, after=0)


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    ago = max(0.0, (datetime.now(UTC) - parse_time(entry["time"])).total_seconds())
    task = entry.get("taskId", "") + (f"/{entry['runId']}" if "runId" in entry else "")
    task = task or (f"{len(entry['taskIds'])} tasks" if "taskIds" in entry else "")
    why = ": ".join(entry[name] for name in ("code", "reason") if name in entry)
    why += f" (fault {entry['fault']})" if "fault" in entry else ""
    endpoint = entry.get("endpoint") or f"{entry['method']} {entry['path']}"
    return (
        f"{duration_words(ago)} ago",
        str(entry["status"]),
        endpoint,
        task,
        requester(entry),
        f"{entry['ms']:.1f}",
        why.strip(),
    )
