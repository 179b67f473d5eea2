"""legacy-queue backup: a data directory with the embedded storage as it is now."""

from pathlib import Path

import click

from legacy_queue.cli.options import SettingsCommand, pass_given
from legacy_queue.cli.progress import progress
from legacy_queue.config import Given


@click.command(cls=SettingsCommand, uses=("data_dir",))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@pass_given
def backup(given: Given, folder: Path) -> None:
    """Copy the embedded storage into DIR, a new data directory, while it is served or not.

    `serve --data-dir DIR` starts from it. DIR must not exist. Only its owner may read it: it has the key that
    signs URLs, development.json, and the authority of --tls auto. It does not have your settings: start with
    the same. Takes the options of serve.
    """
    from legacy_queue.wiring import make_backup  # it imports the whole server

    settings = given.settings()
    with progress() as show:
        make_backup(settings, folder, show)
    click.echo(f"The storage of {settings.data_dir} is in {folder}, a data directory to start from.")
