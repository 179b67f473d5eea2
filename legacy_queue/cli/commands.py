"""The subcommands of ``legacy-queue``. The module of each is imported when it is called, and no other."""

import importlib
from typing import Any

import click

from legacy_queue import __version__

_SECTIONS = {
    "Run a queue": {
        "up": "Run it for a person: say what to try, or show a task's life.",
        "serve": "Run it: the HTTP server and, by default, its own Azurite.",
        "test": "Run a test suite, or any command, with a queue of its own.",
        "resolve": "Fire timers, sweep and expire for serve --no-resolvers.",
    },
    "Use a queue": {
        "create-task": "Create a task that runs a command.",
        "worker": "Run the sample worker.",
        "events": "Print what happens to tasks, as it happens.",
        "migration": "Tell who speaks which protocol, and what is ready to move.",
    },
    "Test with a queue that runs with --control, as that of up does": {
        "requests": "Print what it was asked, and what it answered.",
        "peek": "Print the messages of a worker type; dequeue none.",
        "clock": "Print its clock, or move it forward.",
        "fault": "Let requests go wrong on purpose.",
        "reset": "Make it as new, without starting it anew.",
    },
    "Look at settings and files": {
        "config": "Print the settings in force, secrets masked.",
        "queues": "Print the names of the Azure queues behind a worker type.",
        "ca": "Print where the authority of --tls auto is, how to trust it.",
        "azurite": "Install the Azurite that serve starts, ahead of its start.",
    },
}
COMMANDS = {name: text for section in _SECTIONS.values() for name, text in section.items()}

# the modules of commands that are not called as their module is
_MODULES = {
    "azurite": "azurite_command",
    "clock": "control_commands",
    "config": "config_command",
    "events": "events_command",
    "fault": "fault_command",
    "migration": "migration_command",
    "peek": "control_commands",
    "requests": "requests_command",
    "reset": "control_commands",
    "test": "run_tests",  # pytest would take a module of that name for tests
    "worker": "worker_command",
}


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        attribute = name.replace("-", "_")
        module = importlib.import_module(f"legacy_queue.cli.{_MODULES.get(name, attribute)}")
        command: Any = getattr(module, attribute)
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, in sections, without importing every subcommand for its help."""
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<11}", text) for name, text in section.items()])


@click.command(cls=_Commands)
@click.version_option(__version__)
def commands() -> None:
    """A Taskcluster queue for workers that still poll Azure queues."""
