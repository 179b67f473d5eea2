"""legacy-queue azurite: install the Azurite that serve starts."""

import os
import sys
import time
from pathlib import Path

import click
import structlog

from legacy_queue.adapters.azurite import (
    MANIFEST,
    PATCHED_VERSION,
    AzuriteUnavailable,
    install,
    installed,
    is_installed,
)
from legacy_queue.adapters.npm import count_packages
from legacy_queue.cli.logs import log_to_standard_error
from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.config import Settings


@click.group()
def azurite() -> None:
    """The Azurite of serve --storage azurite. It is installed when it is first needed."""


@azurite.command("install")
@setting_options
def install_command(**options: str | None) -> None:
    """Install Azurite if it is not installed yet, and print where it is. Takes the options of serve."""
    settings, _ = settings_of(options)
    log_to_standard_error(settings.log_format, settings.log_level)
    try:
        folder = ensure_installed(settings)
    except AzuriteUnavailable as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"Azurite {PATCHED_VERSION} is in {folder}")


def ensure_installed(settings: Settings) -> Path:
    """Install Azurite if needed, and show the progress; its folder. Raises AzuriteUnavailable."""
    folder = installed(settings.azurite_dir)
    if is_installed(folder):
        return folder
    packages, log, began = count_packages(MANIFEST), structlog.get_logger(), time.monotonic()
    if sys.stderr and os.isatty(sys.stderr.fileno()):
        with click.progressbar(
            length=packages, label="Installing Azurite, once", file=sys.stderr, show_pos=True, show_eta=False
        ) as bar:
            install(folder, lambda done: bar.update(done - bar.pos))
    else:
        log.info("azurite-installing", folder=str(folder), packages=packages)
        install(folder)
        log.info("azurite-installed", folder=str(folder), seconds=round(time.monotonic() - began, 1))
    return folder
