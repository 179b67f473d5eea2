"""The group ``legacy-queue``. It imports the module of a command only when that command is called."""

import errno
from difflib import get_close_matches
from pkgutil import resolve_name
from typing import Any

import click
from click.shell_completion import CompletionItem

from legacy_queue import __version__
from legacy_queue.cli.command_table import COMMANDS, SECTIONS
from legacy_queue.ports.account import UnusableStorage

# for one release, each removed command has a sentence that says what to do instead
_REMOVED = {
    "restore": "a backup is a data directory: start from it with `legacy-queue serve --data-dir BACKUP`. If "
    "version 0.1.0 made it, copy FILE to storage.sqlite and FILE-artifacts to artifacts in a new folder.",
    "resolve": "run another `legacy-queue serve` instead; every server now does the background work.",
}


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. If it cannot use its storage, a file or a stream, it ends with a sentence."""
        try:
            return super().invoke(ctx)
        except UnusableStorage as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            is_of_requests = error.errno is None and type(error) is not OSError
            # the text of an error of requests may have a signed URL, and click handles a closed output itself
            if is_of_requests or error.errno == errno.EPIPE:
                raise
            what = f"{error.filename} cannot be used: " if error.filename is not None else ""
            raise click.ClickException(f"{what}{error.strerror or error}") from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command if one is misspelled, and what replaces a removed one."""
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
        command: click.Command = resolve_name(f"legacy_queue.cli.{COMMANDS[name].place}")
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in sections. Their modules are not imported."""
        width = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), row.text) for name, row in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command. Their modules are not imported."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name].text) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__)
def commands() -> None:
    """A Taskcluster queue for workers that still poll Azure queues."""
