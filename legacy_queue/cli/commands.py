"""The subcommands of ``legacy-queue``. The module of each is imported when it is called, and no other."""

import errno
import importlib
from difflib import get_close_matches
from typing import Any

import click

from legacy_queue import __version__
from legacy_queue.ports.account import UnusableStorage

_SECTIONS = {
    "Run a queue": {
        "up": "Run it and print commands to try, or show the life of a task.",
        "serve": "Run the HTTP server.",
        "test": "Run a test suite, or any command, with a new queue.",
    },
    "Use a queue": {
        "create-task": "Create a task that runs a command.",
        "env": "Print the variables with which clients find it.",
        "worker": "Run the sample worker.",
        "cancel": "Cancel a task.",
        "rerun": "Run a resolved task again.",
        "log": "Print the log of a task.",
        "events": "Print the events of tasks as they happen.",
        "migration": "Report which workers speak which protocol.",
    },
    "Ask a queue why": {
        "status": "Say what a task waits for, and what happened to it.",
        "tasks": "List tasks.",
        "group": "List the tasks of a task group.",
        "pools": "List pools: their tasks, and who asks for work.",
        "workers": "List workers: their last call and quarantine.",
        "peek": "Print the messages of a pool without dequeuing.",
        "open": "Print a link to the queue's page, for a browser.",
    },
    "Test with a queue that runs with --control, as up does": {
        "requests": "Print its last requests and their answers.",
        "clock": "Print its clock, or move it forward.",
        "fault": "Cause faults in requests.",
        "reset": "Empty it, without a restart.",
        "conform": "Judge whether a worker follows the protocol.",
    },
    "Look at settings and files": {
        "config": "Print the settings in force, with secrets masked.",
        "queues": "Print the names of the Azure queues behind a pool.",
        "backup": "Copy the embedded storage into a new data directory.",
        "ca": "Print the path of --tls auto's authority, and how to trust it.",
    },
}
COMMANDS = {name: text for section in _SECTIONS.values() for name, text in section.items()}

# a sentence for each command that was removed, for one release
_REMOVED = {
    "restore": "a backup is a data directory; start from it by `legacy-queue serve --data-dir BACKUP`. For "
    "one of 0.1.0, put FILE into a new folder as storage.sqlite, and FILE-artifacts as artifacts.",
    "resolve": "start another `legacy-queue serve` in its place; each server now does the background work.",
}

# the module of each command that has another name than its module
_MODULES = {
    **dict.fromkeys(
        ("cancel", "group", "log", "open", "peek", "pools", "rerun", "status", "tasks", "workers"), "inspect"
    ),
    **dict.fromkeys(("env", "queues"), "config"),
    **dict.fromkeys(("clock", "fault", "requests", "reset"), "control"),
    "test": "run_tests",  # pytest collects modules named test*
}


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Storage, a file or a stream that cannot be used ends it with a sentence."""
        try:
            return super().invoke(ctx)
        except UnusableStorage as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            has_url = error.errno is None and type(error) is not OSError  # of requests: it may be signed
            if has_url or error.errno == errno.EPIPE:  # click ends a command whose output is closed
                raise
            what = f"{error.filename} cannot be used: " if error.filename is not None else ""
            raise click.ClickException(f"{what}{error.strerror or error}") from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a command for a misspelled one, and say what to do instead of a removed one."""
        if args[0] in _REMOVED:
            ctx.fail(f"`legacy-queue {args[0]}` was removed: {_REMOVED[args[0]]}")
        near = get_close_matches(args[0], COMMANDS, 1)
        if args[0] not in COMMANDS and near:
            ctx.fail(f"There is no command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        attribute = "open_page" if name == "open" else name.replace("-", "_")
        module = importlib.import_module(f"legacy_queue.cli.{_MODULES.get(name, attribute)}")
        command: click.Command = getattr(module, attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in sections, without importing each for its help."""
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<11}", text) for name, text in section.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__)
def commands() -> None:
    """A Taskcluster queue for workers that still poll Azure queues."""
