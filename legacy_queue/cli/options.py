"""The settings as options of a command, and the option of those that run until a signal."""

import _thread
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from legacy_queue.cli.signals import stop_with_stdin
from legacy_queue.config import values
from legacy_queue.config.settings import CONFIG, DECLARED, Settings, SettingsError, load, wire_name


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an option for each setting, and ``--config``."""
    for one in reversed(DECLARED):
        # a flag may be given without a value
        more: Any = {"is_flag": False, "flag_value": "true"} if one.metadata["parse"] is values.flag else {}
        option = click.option(f"--{wire_name(one.name)}", metavar="VALUE", help=one.metadata["help"], **more)
        command = option(command)
    return click.option(f"--{CONFIG}", metavar="FILE", help="Settings as TOML.")(command)


def settings_of(options: Mapping[str, str | None]) -> tuple[Settings, Mapping[str, str]]:
    """What ``config.load`` finds; a mistake ends the command with a sentence."""
    try:
        return load({wire_name(name): value for name, value in options.items()}, os.environ)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def _watch_stdin(_ctx: click.Context, _param: click.Parameter, is_given: bool) -> None:
    if is_given and sys.stdin is None:
        raise click.UsageError("--stop-with-stdin needs a standard input, and it is closed")
    if is_given:  # a Thread that gevent has patched would not bear a fork
        _thread.start_new_thread(stop_with_stdin, ())


stop_with_stdin_option = click.option(
    "--stop-with-stdin",
    is_flag=True,
    expose_value=False,
    callback=_watch_stdin,
    help="End as by SIGTERM when standard input ends: when the process that holds its pipe is gone.",
)
