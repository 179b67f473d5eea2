"""legacy-queue create-task: create a task for the sample worker."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from legacy_queue.cli.queue_options import ask, pool_options, queue_options, root_of
from legacy_queue.config import values
from legacy_queue.domain.ids import TASK_ID, slugid
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.worker import Credentials
from legacy_queue.worker.command import Payload, PayloadError

_POLL_INTERVAL = 0.5  # seconds
_UNAVAILABLE_TIMEOUT = 60  # seconds
_RESOLVED = ("completed", "failed", "exception")


def _duration(_ctx: click.Context, _param: click.Parameter, value: str) -> timedelta:
    try:
        duration: timedelta = values.duration(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from None
    return duration


def _pairs(accepted: str) -> Callable[..., dict[str, str]]:
    def parse(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
        pairs = {}
        for pair in texts:
            name, equals, value = pair.partition("=")
            if not name or not equals:
                raise click.BadParameter(f"{pair!r} is not {accepted}")
            if name in pairs:
                raise click.BadParameter(f"{name!r} is given twice: once is accepted")
            pairs[name] = value
        return pairs

    return parse


def _task_ids(_ctx: click.Context, _param: click.Parameter, task_ids: tuple[str, ...]) -> tuple[str, ...]:
    for task_id in task_ids:
        if not re.fullmatch(TASK_ID, task_id):
            raise click.BadParameter(f"{task_id!r} is not a taskId: 22 characters as create-task prints them")
    return task_ids


@click.command()
@queue_options
@pool_options(required=True)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs("NAME=VALUE"),
    show_default="none",
    help="A variable of the command's environment; may be repeated.",
)
@click.option("--priority", type=click.Choice(PRIORITIES), default="lowest", show_default=True)
@click.option(
    "--deadline",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=_duration,
    help="How long from now, at most 5d: a task that is not resolved by then becomes an exception.",
)
@click.option(
    "--artifact",
    multiple=True,
    metavar="NAME=PATH",
    callback=_pairs("NAME=PATH, such as public/report.txt=report.txt"),
    show_default="none",
    help="A file of the command, uploaded as an artifact of this name; may be repeated.",
)
@click.option(
    "--depends-on",
    multiple=True,
    metavar="TASK_ID",
    callback=_task_ids,
    show_default="none",
    help="A task that must be completed before the new task is pending; may be repeated.",
)
@click.option("--wait", is_flag=True, help="Print each state of the task until it is resolved.")
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
def create_task(
    base_url: str,
    credentials: Credentials,
    provisioner: str,
    worker_type: str,
    env: dict[str, str],
    priority: str,
    deadline: timedelta,
    artifact: dict[str, str],
    depends_on: tuple[str, ...],
    wait: bool,
    words: tuple[str, ...],
) -> None:
    """Create a task whose payload is a command, and print its taskId.

    With --wait the exit code is 0 if the task is completed, and 1 if it ends otherwise.
    """
    task_id = slugid()
    artifacts = {name: {"type": "file", "path": path} for name, path in artifact.items()}
    payload = {"env": env, "artifacts": artifacts}
    more = {"priority": priority, "dependencies": list(depends_on)}
    create(base_url, credentials, task_id, (provisioner, worker_type), words, deadline, payload, more)
    click.echo(task_id)
    if wait and _final_state(base_url, credentials, task_id, deadline) != "completed":
        raise SystemExit(1)


def create(
    base_url: str,
    credentials: Credentials,
    task_id: str,
    pool: tuple[str, str],
    words: Sequence[str],
    deadline: timedelta = timedelta(hours=1),
    payload: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Create the task. A refusal ends the command with the queue's answer.

    ``payload`` and ``more`` are further properties of the payload and of the definition.
    """
    definition = {
        "provisionerId": pool[0],
        "workerType": pool[1],
        **_times(datetime.now(UTC), deadline),
        "payload": {"command": list(words), "maxRunTime": 600, **(payload or {})},
        "metadata": {
            "name": words[0][:255],
            "description": "Created by legacy-queue create-task",
            "owner": "nobody@example.com",
            "source": "https://example.com/legacy-queue",
        },
        **(more or {}),
    }
    try:
        Payload.from_wire(definition["payload"])
    except PayloadError as malformed:
        raise click.UsageError(f"the sample worker would refuse this task: {malformed}") from None
    path = f"/task/{task_id}"
    answer = ask("PUT", base_url, path, credentials, json=definition)
    if answer.status_code == 400 and (now := _moved_time(base_url, credentials)):
        answer = ask("PUT", base_url, path, credentials, json=definition | _times(now, deadline))
    if answer.status_code != 200:
        raise click.ClickException(f"createTask was refused with {answer.status_code}: {answer.text}")


def _times(now: datetime, deadline: timedelta) -> dict[str, str]:
    return {"created": format_time(now), "deadline": format_time(now + deadline)}


def _moved_time(base_url: str, credentials: Credentials) -> datetime | None:
    """The queue's time if a test has moved its clock, else None."""
    answer = ask("GET", root_of(base_url), "/control/v1/clock", credentials)
    if answer.status_code != 200 or not answer.json()["offset"]:
        return None
    return parse_time(answer.json()["now"])


def _final_state(base_url: str, credentials: Credentials, task_id: str, deadline: timedelta) -> str:
    """Wait until the task is resolved and print each change of its state; the last state.

    A queue that does not answer may be restarting: it is asked again until a minute after the deadline.
    """
    shown = ""
    end = time.monotonic() + deadline.total_seconds() + _UNAVAILABLE_TIMEOUT
    while True:
        try:
            answer = ask("GET", base_url, f"/task/{task_id}/status", credentials)
        except click.ClickException:
            if time.monotonic() > end:
                raise
        else:
            if answer.status_code == 200:
                state, line = _state(answer.json()["status"])
                if line != shown:
                    click.echo(line)
                shown = line
                if state in _RESOLVED:
                    return state
            elif answer.status_code < 500 or time.monotonic() > end:
                raise click.ClickException(f"status was refused with {answer.status_code}: {answer.text}")
        time.sleep(_POLL_INTERVAL)


def _state(status: Mapping[str, Any]) -> tuple[str, str]:
    """The task's state, and its line: with the reason if that differs."""
    state = str(status["state"])
    runs = status["runs"]
    reason = runs[-1].get("reasonResolved", state) if runs else state
    return state, state if reason == state else f"{state} ({reason})"
