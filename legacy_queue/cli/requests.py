"""legacy-queue requests: the last requests to a server that runs with ``--control``."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from legacy_queue.cli.queue_options import CalledQueue, json_option, pool_option, queue_options
from legacy_queue.cli.tables import aligned
from legacy_queue.domain.story import requester
from legacy_queue.domain.times import duration_words, parse_time
from legacy_queue.testing.summary import folded, request_line

_HEADS = ("WHEN", "STATUS", "ENDPOINT", "TASK", "WHO", "MS", "WHY")
_INTERVAL = 0.5  # seconds
_MAX_REQUESTS = 1000


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, _MAX_REQUESTS),
    default=20,
    show_default=True,
    help="How many of the last lines, or with --json or --follow requests.",
)
@click.option("--task", "taskId", metavar="TASK", show_default="all", help="Only requests about this task.")
@click.option("--endpoint", show_default="all", help="Only these, such as claimTask or azure.receive.")
@click.option("--failed", is_flag=True, help="Only requests with an error, or without an answer.")
@pool_option
@click.option("--follow", is_flag=True, help="Go on with new requests, until SIGTERM or Ctrl-C.")
@queue_options
@json_option
def requests(
    queue: CalledQueue,
    as_json: bool,
    limit: int,
    follow: bool,
    pool: str | None,
    failed: bool,
    **chosen: str | None,
) -> None:
    """Print the last requests, oldest first, also on signed URLs: status, task, worker, reason of a refusal.

    Equal requests in a row are one line. Requests to /control, /inspect and event streams are left out. With
    --follow and --json each request is a line.
    """
    query = {**chosen, "taskQueueId": pool, "failed": "true" if failed else None}
    is_table = not (follow or as_json)
    answer = _requests(queue, query, limit=_MAX_REQUESTS if is_table else limit)
    last = answer["requests"]
    if follow:
        for request in _followed(queue, query, last):
            click.echo(json.dumps(request) if as_json else request_line(request))
    elif as_json:
        click.echo(json.dumps(answer, indent=2))
    elif last:
        lines = list(folded(last))
        # many polls: the rest of the journal has more lines
        if len(last) == _MAX_REQUESTS and len(lines) <= limit:
            lines = list(folded(_all(queue, query)))
        rows = (_row(entry, count, parse_time(answer["now"])) for entry, count in lines[-limit:])
        click.echo("\n".join(aligned([_HEADS, *rows])))
    else:
        click.echo("There were no requests.")


def _requests(queue: CalledQueue, query: Mapping[str, Any], **more: int) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = queue.ask("GET", "/control/v1/requests", "requests", params={**query, **more})
    return answer


def _all(queue: CalledQueue, query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    after = 0
    is_last = False
    while not is_last:
        page = _requests(queue, query, limit=_MAX_REQUESTS, after=after)["requests"]
        yield from page
        is_last = len(page) < _MAX_REQUESTS
        after = page[-1]["sequence"] if page else after


def _followed(
    queue: CalledQueue, query: Mapping[str, Any], last: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """These requests, then each new request, also after a reset."""
    request: Mapping[str, Any] = {}
    while True:
        for request in last:
            yield request
        time.sleep(_INTERVAL)
        after = request["sequence"] - 1 if request else 0
        first, *last = _requests(queue, query, limit=_MAX_REQUESTS, after=after)["requests"] or [{}]
        if first != request:  # it is the first of all, or a reset has removed it
            last = _requests(queue, query, limit=_MAX_REQUESTS, after=0)["requests"]


def _row(entry: Mapping[str, Any], count: int, now: datetime) -> tuple[str, ...]:
    ago = max(0.0, (now - parse_time(entry["time"])).total_seconds())
    task = entry.get("taskId", "") + (f"/{entry['runId']}" if "runId" in entry else "")
    task = task or (f"{len(entry['taskIds'])} tasks" if "taskIds" in entry else "")
    why = ": ".join(entry[name] for name in ("code", "reason") if name in entry)
    why += f" (fault {entry['fault']})" if "fault" in entry else ""
    endpoint = entry.get("endpoint") or f"{entry['method']} {entry['path']}"
    endpoint += f" ({count} times)" if count > 1 else ""
    return (
        f"{duration_words(ago)} ago",
        str(entry["status"]),
        endpoint,
        task,
        requester(entry),
        f"{entry['ms']:.1f}",
        why.strip(),
    )
