"""legacy-queue create-task: create a task for the sample worker."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from legacy_queue.cli.completion import complete_tasks
from legacy_queue.cli.queue_options import QueueCommand, id_type, pool_argument, queue_options
from legacy_queue.config import values
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.states import RESOLVED
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.history.words import state_words
from legacy_queue.queue_client import QueueClient, RequestFailed

_POLL_INTERVAL = 0.5  # seconds
_UNAVAILABLE_TIMEOUT = 60  # seconds


def _pairs(expected: str) -> Callable[..., dict[str, str]]:
    def parse(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
        pairs = {}
        for pair in texts:
            name, equals, value = pair.partition("=")
            if not name or not equals:
                raise click.BadParameter(f"{pair!r}: expected {expected}")
            if name in pairs:
                raise click.BadParameter(f"{name!r} is given twice: expected once")
            pairs[name] = value
        return pairs

    return parse


def _completing(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """The payload of a task that completes: built in for a kind of worker, or from a file."""
    if value is None:
        return None
    from legacy_queue.cli.conform import payloads_of  # few commands need what it imports

    return dict(payloads_of(ctx, param, value)["completes"])


@click.command(cls=QueueCommand)
@queue_options
@pool_argument
@click.option(
    "--payload",
    metavar="KIND|FILE",
    callback=_completing,
    show_default="sample worker",
    help="The task's payload: a JSON file, or a kind of worker: scriptworker, generic-worker "
    "or docker-worker.",
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs("NAME=VALUE"),
    help="A variable for the command's environment; may be repeated.",
)
@click.option(
    "--priority",
    type=values.one_of(*PRIORITIES),
    default="lowest",
    metavar="PRIORITY",
    help=f"One of {', '.join(PRIORITIES)}.",
)
@click.option(
    "--deadline",
    default="1h",
    type=values.duration,
    help="How long the task may take in all, at most 5d. After that it becomes an exception.",
)
@click.option(
    "--artifact",
    multiple=True,
    metavar="NAME=PATH",
    callback=_pairs("NAME=PATH, such as public/report.txt=report.txt"),
    help="Upload the file PATH, which the command writes, as the artifact NAME; may be repeated.",
)
@click.option(
    "--depends-on",
    multiple=True,
    type=id_type("taskId"),
    shell_complete=complete_tasks,
    help="A task that must complete before the new task becomes pending; may be repeated.",
)
@click.option("--wait", is_flag=True, help="Wait until the task is resolved, and print each state it gets.")
@click.argument("words", nargs=-1, metavar="-- COMMAND...")
def create_task(
    queue: QueueClient,
    pool: str,
    payload: dict[str, Any] | None,
    env: dict[str, str],
    priority: str,
    deadline: timedelta,
    artifact: dict[str, str],
    depends_on: tuple[str, ...],
    wait: bool,
    words: tuple[str, ...],
) -> None:
    """Create a task that runs COMMAND in the pool POOL (provisionerId/workerType), and print its taskId.

    With --payload, COMMAND replaces the command in that payload. You may then leave it out.

    With --wait, the exit code is 0 if the task completes, and 1 if it is resolved in any other way.
    """
    task_id = slugid()
    definition = definition_of(pool, words or ("create-task",))
    if payload is None:
        if not words:
            raise click.UsageError("expected a command after --, or --payload")
        artifacts = {name: {"type": "file", "path": path} for name, path in artifact.items()}
        definition["payload"] |= {"env": env, "artifacts": artifacts}
    else:
        if artifact:
            raise click.UsageError(
                "--artifact cannot be combined with --payload: put the artifacts into the payload"
            )
        definition["payload"] = _with_command(payload, words)
        if env:
            definition["payload"]["env"] = {**payload.get("env", {}), **env}
    definition |= {"priority": priority, "dependencies": list(depends_on)}
    create(queue, task_id, definition, deadline)
    click.echo(task_id)
    if wait and _final_state(queue, task_id, deadline) != "completed":
        raise SystemExit(1)


def definition_of(pool: str, words: Sequence[str]) -> dict[str, Any]:
    """The definition of a task that runs a command in ``provisionerId/workerType``, without its times."""
    provisioner_id, worker_type = pool.split("/")
    return {
        "provisionerId": provisioner_id,
        "workerType": worker_type,
        "payload": {"command": list(words), "maxRunTime": 600},
        "metadata": {
            "name": words[0][:255],
            "description": "Created by legacy-queue create-task",
            "owner": "nobody@example.com",
            "source": "https://example.com/legacy-queue",
        },
    }


def _with_command(payload: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The payload with these words as its command, or as its only command if it has a list of commands."""
    if not words:
        return dict(payload)
    command = payload.get("command")
    has_several = isinstance(command, list) and any(isinstance(each, list) for each in command)
    return {**payload, "command": [list(words)] if has_several else list(words)}


def create(queue: QueueClient, task_id: str, definition: dict[str, Any], deadline: timedelta) -> None:
    """Create the task. Raises RequestFailed."""

    def put(now: datetime) -> None:
        times = {"created": format_time(now), "deadline": format_time(now + deadline)}
        queue.call("PUT", f"{queue.path}/task/{task_id}", definition | times)

    try:
        put(datetime.now(UTC))
    except RequestFailed as refused:
        moved = moved_time(queue) if refused.status == 400 else None
        if not moved:
            raise
        put(moved)


def moved_time(queue: QueueClient) -> datetime | None:
    """The queue's time, if a test has moved its clock; otherwise None."""
    with suppress(RequestFailed):
        clock = queue.call("GET", "/control/v1/clock", expected="offset")
        return parse_time(clock["now"]) if clock["offset"] else None
    return None


def _final_state(queue: QueueClient, task_id: str, deadline: timedelta) -> str:
    """Wait until the task is resolved, print each state it gets, and return the last one.

    If the queue does not answer, it may be restarting: it is asked again until a minute after the deadline.
    """
    path = f"{queue.path}/task/{task_id}/status"
    shown = ""
    end = time.monotonic() + deadline.total_seconds() + _UNAVAILABLE_TIMEOUT
    while True:
        status = queue.call("GET", path, expected="status", retry_until=end)["status"]
        if state_words(status) != shown:
            shown = state_words(status)
            click.echo(shown)
        if status["state"] in RESOLVED:
            return str(status["state"])
        time.sleep(_POLL_INTERVAL)
