"""legacy-queue requests: what a server that runs with ``--control`` was asked, and what it answered."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from legacy_queue.cli.control_commands import Control, control_options
from legacy_queue.cli.tables import aligned, duration_words
from legacy_queue.domain.times import parse_time
from legacy_queue.testing.summary import request_line, requester

_HEADS = ("WHEN", "STATUS", "ENDPOINT", "TASK", "WHO", "MS", "WHY")
_INTERVAL = 0.5  # seconds
_PAGE = 1000


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, _PAGE), default=20, show_default=True, help="How many, the last ones."
)
@click.option("--follow", is_flag=True, help="Go on with those that come, until SIGTERM or Ctrl-C.")
@control_options
def requests(control: Control, as_json: bool, limit: int, follow: bool) -> None:
    """Print the last requests, oldest first, those of signed URLs too: status, task, worker, why not.

    Requests to /control and event streams are left out. With --json each request is a line.
    """
    last = _asked(control, limit=limit)
    if as_json or follow:
        for one in _and_on(control, last) if follow else last:
            click.echo(json.dumps(one) if as_json else request_line(one))
    elif last:
        click.echo("\n".join(aligned([_HEADS, *map(_row, last)])))
    else:
        click.echo("There were no requests.")


def _asked(control: Control, **query: int) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = control.ask("GET", "/requests", "requests", params=query)["requests"]
    return found


def _and_on(control: Control, last: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """These, and then those that come, also after a reset."""
    seen: Mapping[str, Any] = {"sequence": 1}
    while True:
        for seen in last:
            yield seen
        time.sleep(_INTERVAL)
        first, *last = _asked(control, limit=_PAGE, after=seen["sequence"] - 1) or [{}]
        if first != seen:
            last = _asked(control, limit=_PAGE, after=0)


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    ago = max(0.0, (datetime.now(UTC) - parse_time(one["time"])).total_seconds())
    task = one.get("taskId", "") + (f"/{one['runId']}" if "runId" in one else "")
    task = task or (f"{len(one['taskIds'])} tasks" if "taskIds" in one else "")
    why = ": ".join(one[name] for name in ("code", "reason") if name in one)
    why += f" (fault {one['fault']})" if "fault" in one else ""
    endpoint = one.get("endpoint") or f"{one['method']} {one['path']}"
    return (
        f"{duration_words(ago)} ago",
        str(one["status"]),
        endpoint,
        task,
        requester(one),
        f"{one['ms']:.1f}",
        why.strip(),
    )
