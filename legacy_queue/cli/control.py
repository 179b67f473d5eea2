"""legacy-queue clock and reset, for a server that runs with ``--control``."""

from collections.abc import Mapping
from typing import Any

import click

from legacy_queue.cli.queue_options import CalledQueue, Report, reporting
from legacy_queue.domain.times import duration_words


class DefaultGroup(click.Group):
    """A group that runs its first command if the arguments name none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=DefaultGroup)
def clock() -> None:
    """Print the queue's clock, or move it. Claims, deadlines and messages follow it, credentials do not."""


@clock.command("show")
@reporting
def show_clock(queue: CalledQueue) -> Report:
    """Print the queue's time. This is what `legacy-queue clock` does."""
    return _clock(queue.ask("GET", "/control/v1/clock", "now"))


@clock.command()
@click.argument("by", metavar="DURATION")
@reporting
def advance(queue: CalledQueue, by: str) -> Report:
    """Move the clock forward by a duration like 21m, 1500ms, 2h or 5d.

    Everything that becomes due happens before the command ends, in the order of time.
    """
    return _move(queue, advance=by)


@clock.command()
@reporting
def freeze(queue: CalledQueue) -> Report:
    """Stop the clock. `advance` still moves it."""
    return _move(queue, freeze=True)


@clock.command()
@reporting
def release(queue: CalledQueue) -> Report:
    """Let a frozen clock run on from its time."""
    return _move(queue, release=True)


def _move(queue: CalledQueue, **move: Any) -> Report:
    return _clock(queue.ask("POST", "/control/v1/clock", "now", json=move))


def _clock(answer: Mapping[str, Any]) -> Report:
    offset = answer["offset"]
    words = [answer["now"]]
    if offset:
        words.append(f"{duration_words(abs(offset))} {'ahead of' if offset > 0 else 'behind'} the real time")
    words += ["frozen"] if answer["frozen"] else []
    words += [] if answer["movable"] else [answer["reason"]]
    return answer, ", ".join(words)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask, also where the data would stay after the server.")
@reporting
def reset(queue: CalledQueue, yes: bool) -> Report:
    """Remove all tasks, messages, events, artifacts, workers and faults, and set the clock back.

    Claims that wait for work and event streams end. On Azurite only the queues and tables with this server's
    queue-prefix are emptied; on Azure a reset is refused.
    """
    if not yes and queue.ask("GET", "/control/v1/reset", "kept")["kept"]:
        click.confirm(f"Remove everything that {queue.root_url} has stored?", abort=True, err=True)
    return queue.ask("POST", "/control/v1/reset"), "The queue is as new."
