"""The settings as options of a command, and the option of those that run until a signal."""

import _thread
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import Field
from datetime import timedelta
from typing import Any

import click

from legacy_queue.cli.signals import stop_with_stdin
from legacy_queue.config.settings import CONFIG, DECLARED, Settings, SettingsError, load, wire_name
from legacy_queue.config.values import duration_text

MADE_UP = ("clients", "signing_secrets")  # made up for development where none are configured


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an option for each setting, and ``--config``."""
    for one in reversed(DECLARED):
        name = wire_name(one.name)
        shown = f"{one.metadata['help']}  [default: {_default(one)}]"
        how = one.metadata["option"]
        command = click.option(f"--{name}", metavar="VALUE", help=shown, callback=_joined, **how)(command)
    return click.option(f"--{CONFIG}", metavar="FILE", help="Settings as TOML.  [default: none]")(command)


def _default(setting: Field[Any]) -> str:
    """The setting's default, as it would be given. The option itself has none: a variable or the file may."""
    assert callable(setting.default_factory)  # noqa: S101
    default = setting.default_factory()
    if setting.name in MADE_UP:
        return "made up for development"
    if isinstance(default, timedelta):
        return duration_text(default)
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if default else "none"


def _joined(_ctx: click.Context, _param: click.Parameter, value: Any) -> str | None:
    """An option that is given several times is a list with commas."""
    return (",".join(value) or None) if isinstance(value, tuple) else value


def settings_of(options: Mapping[str, str | None]) -> tuple[Settings, Mapping[str, str]]:
    """What ``config.load`` finds; a mistake ends the command with a sentence."""
    try:
        return load({wire_name(name): value for name, value in options.items()}, os.environ)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None


def with_control(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str | None]:
    """The options and --control, unless something says control already or stands against it.

    Raises SettingsError for a mistake in the settings.
    """
    named = {wire_name(name): value for name, value in options.items()}
    _, sources = load(named, environ)
    if sources["control"] == "default":
        with suppress(SettingsError):
            load({**named, "control": "true"}, environ)
            return {**options, "control": "true"}
    return dict(options)


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
