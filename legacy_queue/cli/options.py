"""The settings as options of a command, and the option --stop-with-stdin."""

import _thread
import inspect
import sys
from collections.abc import Sequence
from typing import Any

import click

from legacy_queue.cli.tables import MAX_OPTION_WIDTH
from legacy_queue.config.given_settings import CONFIG, OPTIONS, READS_VARIABLES, GivenSettings, refuse_removed
from legacy_queue.config.settings import DECLARED
from legacy_queue.server.signals import stop_with_stdin

pass_given = click.make_pass_decorator(GivenSettings, ensure=True)  # to a SettingsCommand
_ALL = "--help-all"


class SettingsCommand(click.Command):
    """A command that takes every setting as an option.

    Its --help fits on a screen: it shows only the options in ``uses``. --help-all shows all, in sections.
    """

    def __init__(
        self, *args: Any, uses: Sequence[str] = (), reads_variables: bool = True, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._uses = (*uses, CONFIG, "help_all")
        self.params += OPTIONS
        if reads_variables:
            self.context_settings.update(READS_VARIABLES)
        help_all = click.Option([_ALL], is_flag=True, is_eager=True, expose_value=False, callback=_show_all)
        help_all.help = f"Show every option, with all {len(DECLARED)} settings."
        self.params.append(help_all)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. If an option was removed, the error says what to do instead."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            refuse_removed(error.option_name.lstrip("-"), error.option_name)
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first paragraph, or with --help-all all of them."""
        text = inspect.cleandoc(self.help or "")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text if _ALL in ctx.meta else text.partition("\n\n")[0])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that are used most, or with --help-all all of them in sections."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {str(option.name): option.get_help_record(ctx) for option in options}
        own_help = str(getattr(self.get_help_option(ctx), "name", ""))  # click 8.2 renamed it
        sections: dict[str, list[str]] = {"Options": [] if _ALL in ctx.meta else [*self._uses, own_help]}
        if _ALL in ctx.meta:
            settings = {setting.name: setting.metadata["section"] for setting in DECLARED}
            for name in records:
                sections.setdefault(settings.get(name, "Options"), []).append(name)
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := records[name])], MAX_OPTION_WIDTH)


def _show_all(ctx: click.Context, _param: click.Parameter, is_given: bool) -> None:
    if is_given:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def watch_stdin() -> None:
    """Do what --stop-with-stdin says. If gevent is used, call this after it has patched."""
    if sys.stdin is None:
        raise click.UsageError("--stop-with-stdin needs a standard input, but it is closed")
    # gevent patches Thread, and a patched one would not survive a fork
    _thread.start_new_thread(stop_with_stdin, ())


stop_with_stdin_option = click.option(
    "--stop-with-stdin",
    is_flag=True,
    help="Shut down when standard input ends, for example because the process that holds its pipe has ended.",
)
