"""legacy-queue backup and restore: a copy of the file of embedded storage, and its return."""

from pathlib import Path

import click

from legacy_queue.cli.options import SettingsCommand, setting_options, settings_of
from legacy_queue.cli.progress import progress


@click.command(cls=SettingsCommand, uses=("data_dir",))
@setting_options
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path, **options: str | None) -> None:
    """Copy the embedded storage to FILE, and its artifacts to FILE-artifacts, while it is served or not.

    FILE must not exist. It is private as the storage itself: it holds the key that signs URLs. `restore`
    puts it back. Takes the options of serve.
    """
    from legacy_queue.wiring import required_file  # it imports the whole server

    settings, _ = settings_of(options)
    with progress() as show:
        required_file(settings).back_up(file, show)
    click.echo(f"The storage of {settings.data_dir} is in {file}, its artifacts are in {file}-artifacts.")


@click.command(cls=SettingsCommand, uses=("data_dir",))
@setting_options
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def restore(file: Path, **options: str | None) -> None:
    """Put the backup FILE and FILE-artifacts in the place of the embedded storage, which is lost.

    The server must be stopped. Takes the options of serve.
    """
    from legacy_queue.wiring import required_file  # it imports the whole server

    settings, _ = settings_of(options)
    with progress() as show:
        missing = required_file(settings).restore(file, show)
    click.echo(f"The storage of {settings.data_dir} is that of {file}.")
    if missing:
        click.echo(f"Artifacts that are not in {file}-artifacts, and lost: {missing}.", err=True)
