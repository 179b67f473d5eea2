"""legacy-queue backup: a copy of the file of embedded storage."""

from pathlib import Path

import click

from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.wiring import storage_file


@click.command()
@setting_options
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path, **options: str | None) -> None:
    """Copy the embedded storage to FILE, and its artifacts to FILE-artifacts, while it is served or not.

    FILE must not exist. It is private as the storage itself: it holds the key that signs URLs. To restore it,
    stop the server, copy FILE over storage.sqlite in the data directory, FILE-artifacts over artifacts, and
    remove storage.sqlite-wal and storage.sqlite-shm. Takes the options of serve.
    """
    settings, _ = settings_of(options)
    storage = storage_file(settings)
    if storage is None:
        raise click.ClickException(
            f"--storage {settings.storage} has no file: backup is for embedded storage"
        )
    storage.back_up(file)
    click.echo(f"The storage of {settings.data_dir} is in {file}, its artifacts are in {file}-artifacts.")
