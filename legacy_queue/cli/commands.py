"""The subcommands of ``legacy-queue``. The module of each is imported when it is called, and no other."""

import importlib
from typing import Any

import click

from legacy_queue import __version__

_COMMANDS = {
    "serve": "Run the queue: the HTTP server and, by default, its own Azurite.",
    "resolve": "Fire timers, sweep and expire for servers that run with --no-resolvers.",
    "up": "Run the queue for a person: say what to try, or show a task's life with --demo.",
    "create-task": "Create a task that runs a command.",
    "worker": "Run the sample worker.",
    "events": "Print what happens to tasks, as it happens.",
    "migration": "Tell who still speaks which protocol, and what a worker type is ready for.",
    "queues": "Print the names of the Azure queues behind a worker type.",
    "azurite": "Install the Azurite that serve starts, ahead of its first start.",
    "ca": "Print where the authority of --tls auto is, and how clients trust it.",
    "config": "Print the settings in force, secrets masked.",
}


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        attribute = name.replace("-", "_")
        command: Any = getattr(importlib.import_module(f"legacy_queue.cli.{attribute}"), attribute)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, without importing every subcommand for its help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Commands)
@click.version_option(__version__)
def commands() -> None:
    """A Taskcluster queue for workers that still poll Azure queues."""
