"""The settings as options of a command, and --stop-with-stdin."""

import _thread
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import click

from legacy_queue.config.settings import CONFIG, DECLARED, REMOVED, Settings, SettingsError, load, wire_name
from legacy_queue.server.signals import stop_with_stdin

GENERATED = ("clients", "signing_secrets")  # for development, if none are configured


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an option for each setting, and ``--config``."""
    for name in REMOVED:  # so that the refusal says why
        command = click.option(f"--{name}", hidden=True)(command)
    for setting in reversed(DECLARED):
        name = wire_name(setting.name)
        # click's option has no default: a variable or the file may set the value
        default = "made up for development" if setting.name in GENERATED else setting.metadata["default"]
        shown = f"{setting.metadata['help']}  [default: {default}]"
        more: dict[str, Any] = {"multiple": setting.metadata["multiple"]}
        if setting.type is bool:
            more = {"is_flag": False, "flag_value": "true"}  # --control is --control=true
        command = click.option(f"--{name}", metavar="VALUE", help=shown, callback=_joined, **more)(command)
    return click.option(f"--{CONFIG}", metavar="FILE", help="A TOML file of settings.  [default: none]")(
        command
    )


def _joined(_ctx: click.Context, _param: click.Parameter, value: Any) -> str | None:
    """The values of a repeated option, joined with commas."""
    return (",".join(value) if value else None) if isinstance(value, tuple) else value


def settings_of(options: Mapping[str, str | None]) -> tuple[Settings, Mapping[str, str]]:
    """The result of ``config.load``."""
    return load(options, os.environ)


def with_control(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str | None]:
    """The options and --control, unless control is set already or another setting excludes it.

    Raises SettingsError for wrong settings.
    """
    _, sources = load(options, environ)
    if sources["control"] == "default":
        with suppress(SettingsError):
            load({**options, "control": "true"}, environ)
            return {**options, "control": "true"}
    return dict(options)


def watch_stdin() -> None:
    """Do what --stop-with-stdin says. Under gevent, after it has patched."""
    if sys.stdin is None:
        raise click.UsageError("--stop-with-stdin needs a standard input, and it is closed")
    # a Thread that gevent has patched would not survive a fork
    _thread.start_new_thread(stop_with_stdin, ())


stop_with_stdin_option = click.option(
    "--stop-with-stdin",
    is_flag=True,
    help="End as by SIGTERM when standard input ends, as when the process that holds its pipe has ended.",
)
