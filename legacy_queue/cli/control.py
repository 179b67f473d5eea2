"""legacy-queue clock, fault, requests and reset. The server must run with ``--control``."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from legacy_queue.cli.completion import complete_endpoints, complete_faults
from legacy_queue.cli.queue_options import (
    AnswerAndText,
    QueueCommand,
    json_option,
    pool_option,
    queue_options,
    reporting,
    task_option,
)
from legacy_queue.config.values import Value, matching, number, one_of, without_secrets
from legacy_queue.queue_client import QueueClient
from legacy_queue.testing.summary import clock_line, fault_line, request_line, request_lines

_INTERVAL = 0.5  # seconds


class _DefaultGroup(click.Group):
    """A group that runs its first command if the command line names none."""

    command_class = QueueCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultGroup)
def clock() -> None:
    """Print the queue's clock, or move it. Claims, deadlines and messages follow it. Credentials do not."""


@clock.command("show")
@reporting
def show_clock(queue: QueueClient) -> AnswerAndText:
    """Print the queue's time, as `legacy-queue clock` alone does."""
    return _clock(queue.call("GET", "/control/v1/clock", expected="now"))


@clock.command()
@click.argument("by", metavar="DURATION")
@reporting
def advance(queue: QueueClient, by: str) -> AnswerAndText:
    """Move the clock forward, for example by 21m, 1500ms, 2h or 5d.

    Everything that becomes due in this time happens before the command ends, in order.
    """
    return _move(queue, advance=by)


@clock.command()
@reporting
def freeze(queue: QueueClient) -> AnswerAndText:
    """Stop the clock. Only `advance` moves it then."""
    return _move(queue, freeze=True)


@clock.command()
@reporting
def release(queue: QueueClient) -> AnswerAndText:
    """Let a frozen clock run again, from the time it shows."""
    return _move(queue, release=True)


def _move(queue: QueueClient, **move: Any) -> AnswerAndText:
    return _clock(queue.call("POST", "/control/v1/clock", move, expected="now"))


def _clock(answer: Mapping[str, Any]) -> AnswerAndText:
    return answer, clock_line(answer)


@click.group(cls=_DefaultGroup)
def fault() -> None:
    """List the faults that are in force, add one, or remove one. A fault makes requests fail."""


@fault.command("list")
@reporting
def list_faults(queue: QueueClient) -> AnswerAndText:
    """List the faults in force, and how often each has fired.

    `legacy-queue fault` alone does the same.
    """
    answer = queue.call("GET", "/control/v1/faults", expected="faults")
    lines = [f"{fault['faultId']}  {fault_line(fault)}" for fault in answer["faults"]]
    return answer, "\n".join(lines) or "There are no faults."


@fault.command()
@click.argument("endpoint", shell_complete=complete_endpoints)
@task_option
@click.option("--worker", metavar="GROUP/ID", help="Only requests of this worker.")
@click.option("--times", type=number(1), show_default="all", help="Only the first N requests.")
@click.option(
    "--probability",
    type=Value("a number above 0 and up to 1, such as 0.5", float),
    metavar="P",
    help="Each request meets the fault with this probability, above 0 and up to 1.",
)
@click.option(
    "--seed",
    type=Value("a whole number", int),
    metavar="N",
    help="With --probability: the same seed selects the same requests in each run.",
)
@click.option("--status", type=number(400, 599), help="Answer with this status, 400 to 599.")
@click.option("--message", metavar="TEXT", help="With --status: the message of the error.")
@click.option(
    "--drop",
    type=one_of("before", "after"),
    metavar="before|after",
    help="Close the connection without an answer, before or after the request is handled.",
)
@click.option(
    "--sas",
    metavar="expired|DURATION",
    help="Answer pollTaskUrls with signed URLs that are expired, or that expire soon, such as in 10s.",
)
@click.option("--double", is_flag=True, help="Deliver a received message twice.")
@click.option("--lose", is_flag=True, help="Delete a message instead of delivering it.")
@click.option("--stale", is_flag=True, help="Deliver a message with a receipt that is not valid.")
@click.option(
    "--delay",
    metavar="DURATION",
    help="Wait first, such as 2s or 200ms. It can be combined with any other fault.",
)
@reporting
def add(queue: QueueClient, endpoint: str, **options: Any) -> AnswerAndText:
    """Make requests to ENDPOINT fail from now on.

    The command prints the id of this fault.

    ENDPOINT is a method of the API, such as claimTask, or a request on a signed URL: azure.receive,
    azure.delete or upload.
    """
    given = [name for name, value in options.items() if value is not None and value is not False]
    fields = {name: options[name] for name in given}
    answer = queue.call("POST", "/control/v1/faults", {"endpoint": endpoint, **fields}, expected="faultId")
    return answer, answer["faultId"]


@fault.command()
@click.argument(
    "fault_id",
    metavar="FAULT",
    type=matching("[0-9a-f]{8}", "the id of a fault, such as ed3e4b88, as `legacy-queue fault` lists it"),
    shell_complete=complete_faults,
)
@reporting
def remove(queue: QueueClient, fault_id: str) -> AnswerAndText:
    """Remove a fault, and say how often it has fired."""
    answer = queue.call("DELETE", f"/control/v1/faults/{fault_id}", expected="faultId")
    return answer, f"fired: {answer['fired']}"


@click.command(cls=QueueCommand)
@click.option(
    "--limit",
    type=number(1, 1000),
    default=20,
    help="Print the last N lines, at most 1000. With --json or --follow, print the last N requests.",
)
@task_option
@click.option(
    "--endpoint",
    metavar="ENDPOINT",
    shell_complete=complete_endpoints,
    help="Only requests to this endpoint, such as claimTask or azure.receive.",
)
@click.option("--failed", is_flag=True, help="Only requests that got an error or no answer.")
@pool_option
@click.option("--follow", is_flag=True, help="Keep printing new requests, until SIGTERM or Ctrl-C.")
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
    """Print the last requests, the oldest first: status, task, worker, and why a request was refused.

    Requests on signed URLs are included. Requests to /control and /inspect, and event streams, are not.

    Equal requests in a row share a line. With --follow and --json, each request is a line of JSON.
    """
    query: dict[str, Any] = {**chosen, "taskQueueId": pool, "failed": "true" if failed else None}
    if not (follow or as_json):
        lines = request_lines(queue.journal(**query)[0])[-limit:]
        nothing = "No request matches." if any(query.values()) else "There were no requests."
        click.echo("\n".join(lines) or nothing)
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
    """These requests, then each new one. If a reset empties the journal, the requests after it follow."""
    request: Mapping[str, Any] = {}
    while True:
        for request in last:
            yield request
        time.sleep(_INTERVAL)
        after = request["sequence"] - 1 if request else 0
        first, *last = queue.journal(after, **query)[0] or [{}]
        if first != request:  # this is the first request of all, or a reset has removed the last one
            last, _ = queue.journal(**query)


@click.command(cls=QueueCommand)
@click.option(
    "--yes",
    is_flag=True,
    help="Do not ask for confirmation, even if the data would outlive the server.",
)
@reporting
def reset(queue: QueueClient, yes: bool) -> AnswerAndText:
    """Remove all tasks, messages, events, artifacts, workers and faults, and set the clock to the real time.

    Event streams end, and so do calls of claimWork that are waiting for work.

    On Azurite, a reset empties only the queues and tables with this server's queue-prefix. On Azure, the
    server refuses it.
    """
    if not yes and queue.call("GET", "/control/v1/reset", expected="kept")["kept"]:
        url = without_secrets(queue.root_url)
        click.confirm(f"Remove everything that the queue at {url} has stored?", abort=True, err=True)
    return queue.call("POST", "/control/v1/reset"), "Queue reset."
