"""legacy-queue clock, fault, requests and reset, for a server that runs with ``--control``."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from legacy_queue.cli.queue_options import (
    AnswerAndText,
    json_option,
    pool_option,
    queue_options,
    reporting,
)
from legacy_queue.config.values import without_secrets
from legacy_queue.queue_client import QueueClient
from legacy_queue.testing.summary import clock_line, fault_line, request_line, request_lines

_INTERVAL = 0.5  # seconds


class _DefaultGroup(click.Group):
    """A group that runs its first command if the arguments name none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultGroup)
def clock() -> None:
    """Print the queue's clock, or move it. Claims, deadlines and messages follow it, credentials do not."""


@clock.command("show")
@reporting
def show_clock(queue: QueueClient) -> AnswerAndText:
    """Print the queue's time. This is what `legacy-queue clock` does."""
    return _clock(queue.call("GET", "/control/v1/clock", expected="now"))


@clock.command()
@click.argument("by", metavar="DURATION")
@reporting
def advance(queue: QueueClient, by: str) -> AnswerAndText:
    """Move the clock forward by a duration like 21m, 1500ms, 2h or 5d.

    Everything that becomes due happens before the command ends, in the order of time.
    """
    return _move(queue, advance=by)


@clock.command()
@reporting
def freeze(queue: QueueClient) -> AnswerAndText:
    """Stop the clock. `advance` still moves it."""
    return _move(queue, freeze=True)


@clock.command()
@reporting
def release(queue: QueueClient) -> AnswerAndText:
    """Let a frozen clock run on from its time."""
    return _move(queue, release=True)


def _move(queue: QueueClient, **move: Any) -> AnswerAndText:
    return _clock(queue.call("POST", "/control/v1/clock", move, expected="now"))


def _clock(answer: Mapping[str, Any]) -> AnswerAndText:
    return answer, clock_line(answer)


@click.group(cls=_DefaultGroup)
def fault() -> None:
    """List the faults, add a fault, or remove it."""


@fault.command("list")
@reporting
def list_faults(queue: QueueClient) -> AnswerAndText:
    """Print the faults in force, and how often each has fired. This is what `legacy-queue fault` does."""
    answer = queue.call("GET", "/control/v1/faults", expected="faults")
    lines = [f"{fault['faultId']}  {fault_line(fault)}" for fault in answer["faults"]]
    return answer, "\n".join(lines) or "There are no faults."


@fault.command()
@click.argument("endpoint")
@click.option("--task", "taskId", metavar="TASK_ID", help="Only requests about this task.")
@click.option("--worker", metavar="WORKER_GROUP/WORKER_ID", help="Only requests of this worker.")
@click.option(
    "--times", type=click.IntRange(min=1), show_default="always", help="End after so many of the requests."
)
@click.option(
    "--probability",
    type=float,
    metavar="P",
    help="The probability that a request meets the fault, above 0.",
)
@click.option("--seed", type=int, help="With a probability: the same requests meet the fault each time.")
@click.option("--status", type=int, help="Answer with this error, 400 to 599.")
@click.option("--message", show_default="the server's own", help="The message of that error.")
@click.option(
    "--drop",
    type=click.Choice(["before", "after"]),
    help="Close the connection without an answer, before the request is handled or after.",
)
@click.option(
    "--sas",
    metavar="expired|DURATION",
    help="Answer with signed URLs that are expired, or expire in 10s.",
)
@click.option("--double", is_flag=True, help="Deliver a received message twice.")
@click.option("--lose", is_flag=True, help="Delete a message instead of delivering it.")
@click.option("--stale", is_flag=True, help="Deliver a message with a receipt that is no longer valid.")
@click.option(
    "--delay",
    metavar="DURATION",
    help="Wait first, for 2s or 200ms; may be combined with the others.",
)
@reporting
def add(queue: QueueClient, endpoint: str, **options: Any) -> AnswerAndText:
    """Cause a fault in requests to ENDPOINT from now on, and print the fault's id.

    ENDPOINT is a method of the reference such as claimTask, or azure.receive, azure.delete or upload.
    """
    given = [name for name, value in options.items() if value is not None and value is not False]
    fields = {name: options[name] for name in given}
    answer = queue.call("POST", "/control/v1/faults", {"endpoint": endpoint, **fields}, expected="faultId")
    return answer, answer["faultId"]


@fault.command()
@click.argument("fault_id", metavar="FAULT_ID")
@reporting
def remove(queue: QueueClient, fault_id: str) -> AnswerAndText:
    """End a fault, and say how often it happened."""
    answer = queue.call("DELETE", f"/control/v1/faults/{fault_id}", expected="faultId")
    return answer, f"fired: {answer['fired']}"


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    help="How many of the last lines, or with --json or --follow requests.",
)
@click.option("--task", "taskId", metavar="TASK", help="Only requests about this task.")
@click.option("--endpoint", help="Only these, such as claimTask or azure.receive.")
@click.option("--failed", is_flag=True, help="Only requests with an error, or without an answer.")
@pool_option
@click.option("--follow", is_flag=True, help="Go on with new requests, until SIGTERM or Ctrl-C.")
@queue_options
@json_option
def requests(
    queue: QueueClient,
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
    query: dict[str, Any] = {**chosen, "taskQueueId": pool, "failed": "true" if failed else None}
    if not (follow or as_json):
        lines = request_lines(queue.journal(**query)[0])[-limit:]
        click.echo("\n".join(lines) or "There were no requests.")
        return
    answer = queue.call("GET", "/control/v1/requests", expected="requests", limit=limit, **query)
    if not follow:
        click.echo(json.dumps(answer, indent=2))
        return
    for request in _followed(queue, query, answer["requests"]):
        click.echo(json.dumps(request) if as_json else request_line(request))


def _followed(
    queue: QueueClient, query: Mapping[str, Any], last: list[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """These requests, then each new request, also after a reset."""
    request: Mapping[str, Any] = {}
    while True:
        for request in last:
            yield request
        time.sleep(_INTERVAL)
        after = request["sequence"] - 1 if request else 0
        first, *last = queue.journal(after, **query)[0] or [{}]
        if first != request:  # it is the first of all, or a reset has removed it
            last, _ = queue.journal(**query)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask, also where the data would stay after the server.")
@reporting
def reset(queue: QueueClient, yes: bool) -> AnswerAndText:
    """Remove all tasks, messages, events, artifacts, workers and faults, and set the clock back.

    Claims that wait for work and event streams end. On Azurite only the queues and tables with this server's
    queue-prefix are emptied; on Azure a reset is refused.
    """
    if not yes and queue.call("GET", "/control/v1/reset", expected="kept")["kept"]:
        url = without_secrets(queue.root_url)
        click.confirm(f"Remove everything that {url} has stored?", abort=True, err=True)
    return queue.call("POST", "/control/v1/reset"), "The queue is as new."
