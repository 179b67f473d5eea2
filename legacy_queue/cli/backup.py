"""legacy-queue backup: a copy of the embedded storage, as a new data directory."""

from pathlib import Path

import click

from legacy_queue.cli.options import SettingsCommand, pass_given
from legacy_queue.cli.progress import progress
from legacy_queue.config import GivenSettings


@click.command(cls=SettingsCommand, uses=("data_dir",))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@pass_given
def backup(given: GivenSettings, folder: Path) -> None:
    """Copy the embedded storage into DIR, a new data directory. A server may be using the storage meanwhile.

    DIR must not exist yet. `legacy-queue serve --data-dir DIR` starts from the copy.

    Only you can read DIR, because it contains secrets: the key that signs URLs, development.json, and the
    certificate authority of --tls auto. It does not contain your settings: start the copy with the same ones.
    Every option of `serve` works here too.
    """
    from legacy_queue.wiring import make_backup  # imports the whole server

    settings = given.settings()
    with progress() as show:
        make_backup(settings, folder, show)
    click.echo(
        f"Copied the storage in {settings.data_dir} to {folder}. Start from it with --data-dir {folder}."
    )
