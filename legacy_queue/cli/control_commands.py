"""legacy-queue clock, peek and reset, for a server that runs with ``--control``."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from legacy_queue.cli.queue_options import answer_of, queue_options, root_of
from legacy_queue.cli.tables import aligned, duration_words
from legacy_queue.domain.ids import TASK_QUEUE_ID
from legacy_queue.domain.times import parse_time
from legacy_queue.worker import Credentials

_HEADS = ("TASK", "RUN", "PRIORITY", "VISIBLE", "DEQUEUED", "INSERTED", "MESSAGE")


@dataclass(frozen=True)
class Control:
    """The control API of a queue, below ``/control/v1``."""

    root_url: str
    credentials: Credentials

    def ask(self, method: str, path: str, expected: str = "", **content: Any) -> Any:
        """As ``answer_of``."""
        return answer_of(method, self.root_url, f"/control/v1{path}", self.credentials, expected, **content)


class DefaultGroup(click.Group):
    """A group that runs its first command if the arguments name none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.commands)


def control_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a queue and --json, and call the command with ``control`` and ``as_json``."""

    @queue_options
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(command)
    def with_control(base_url: str, credentials: Credentials, **options: Any) -> None:
        command(control=Control(root_of(base_url), credentials), **options)

    return with_control


def show(answer: Any, as_json: bool, text: str) -> None:
    """Print the answer for a program, or the text for a person."""
    click.echo(json.dumps(answer, indent=2) if as_json else text)


@click.group(cls=DefaultGroup)
def clock() -> None:
    """Print the queue's clock, or move it. Claims, deadlines and messages follow it, credentials do not."""


@clock.command("show")
@control_options
def show_clock(control: Control, as_json: bool) -> None:
    """Print the queue's time. This is what `legacy-queue clock` does."""
    _show_clock(control.ask("GET", "/clock", "now"), as_json)


@clock.command()
@click.argument("by", metavar="DURATION")
@control_options
def advance(control: Control, as_json: bool, by: str) -> None:
    """Move the clock forward by a duration like 21m, 1500ms, 2h or 5d.

    Everything that becomes due happens before the command ends, in the order of time.
    """
    _move(control, as_json, advance=by)


@clock.command()
@control_options
def freeze(control: Control, as_json: bool) -> None:
    """Stop the clock. `advance` still moves it."""
    _move(control, as_json, freeze=True)


@clock.command()
@control_options
def release(control: Control, as_json: bool) -> None:
    """Let a frozen clock run on from its time."""
    _move(control, as_json, release=True)


def _move(control: Control, as_json: bool, **move: Any) -> None:
    _show_clock(control.ask("POST", "/clock", "now", json=move), as_json)


def _show_clock(answer: Mapping[str, Any], as_json: bool) -> None:
    offset = answer["offset"]
    words = [answer["now"]]
    if offset:
        words.append(f"{duration_words(abs(offset))} {'ahead of' if offset > 0 else 'behind'} the real time")
    words += ["frozen"] if answer["frozen"] else []
    words += [] if answer["movable"] else [answer["reason"]]
    show(answer, as_json, ", ".join(words))


def _pool(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not re.fullmatch(TASK_QUEUE_ID, value):
        raise click.BadParameter(f"{value!r} is not a provisionerId/workerType")
    return value


@click.command()
@click.argument("pool", callback=_pool)
@control_options
def peek(control: Control, as_json: bool, pool: str) -> None:
    """Print the messages in the queues of a worker type, named provisionerId/workerType. None is dequeued.

    With memory storage invisible messages are listed too. Azure's queues list only visible messages, 32 of
    each queue.
    """
    answer = control.ask("GET", f"/messages/{pool}", "messages")
    text = ""
    if not as_json:
        now = parse_time(control.ask("GET", "/clock", "now")["now"])
        text = _messages(answer, now)
    show(answer, as_json, text)


def _messages(answer: Mapping[str, Any], now: datetime) -> str:
    messages: Sequence[Mapping[str, Any]] = answer["messages"]
    pool = answer["taskQueueId"]
    hidden = answer["hidden"]
    lines = list(aligned([_HEADS, *(_row(message, now) for message in messages)])) if messages else []
    if not messages and not hidden:
        lines.append(f"There are no messages for {pool}.")
    if hidden:
        more = "more " if messages else ""
        lines.append(f"{hidden} {more}for {pool} that cannot be listed: invisible, or behind 32 others.")
    return "\n".join(lines)


def _row(message: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    visible_in = message["visibleIn"]
    age = max(0.0, (now - parse_time(message["inserted"])).total_seconds())
    return (
        message.get("taskId", "unknown"),
        str(message.get("runId", "-")),
        message["priority"],
        f"in {duration_words(visible_in)}" if visible_in else "now",
        str(message["dequeueCount"]),
        f"{duration_words(age)} ago",
        message["messageId"],
    )


@click.command()
@control_options
def reset(control: Control, as_json: bool) -> None:
    """Remove all tasks, messages, events, artifacts, workers and faults, and set the clock back.

    Claims that wait for work and event streams end. On Azurite only the queues and tables with this server's
    queue-prefix are emptied; on Azure a reset is refused.
    """
    show(control.ask("POST", "/reset"), as_json, "The queue is as new.")
