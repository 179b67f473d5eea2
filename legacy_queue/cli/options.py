"""The settings as options of a command."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from legacy_queue.config.settings import CONFIG, DECLARED, Settings, SettingsError, load, wire_name


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an option for each setting, and ``--config``."""
    for one in reversed(DECLARED):
        name = wire_name(one.name)
        command = click.option(f"--{name}", metavar="VALUE", help=one.metadata["help"])(command)
    return click.option(f"--{CONFIG}", metavar="FILE", help="Settings as TOML.")(command)


def settings_of(
    options: Mapping[str, str | None], environ: Mapping[str, str]
) -> tuple[Settings, Mapping[str, str]]:
    """What ``config.load`` finds; a mistake ends the command with a sentence."""
    try:
        return load({wire_name(name): value for name, value in options.items()}, environ)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
