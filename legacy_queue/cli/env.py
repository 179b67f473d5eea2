"""legacy-queue env: how clients find the local queue."""

import shlex
from collections.abc import Mapping
from typing import Any

import click

from legacy_queue.cli.queue_options import local_server
from legacy_queue.testing.queue_server import client_variables


@click.command()
def env() -> None:
    """Print the queue's URL, credentials and certificates as variables: eval "$(legacy-queue env)".

    It is the queue that runs in this directory, or in LEGACY_QUEUE_DATA_DIR.
    """
    ready = local_server()
    if not ready:
        raise click.UsageError(
            "No queue runs in this directory: run legacy-queue up or serve, or give its LEGACY_QUEUE_DATA_DIR"
        )
    click.echo(exports(variables_of(ready)))


def variables_of(ready: Mapping[str, Any]) -> dict[str, str]:
    """The variables for clients, and for the commands, of the server with this ready line."""
    return {"LEGACY_QUEUE_ROOT_URL": ready["rootUrl"], **client_variables(ready)}


def exports(variables: Mapping[str, str]) -> str:
    """A line with ``export`` for each variable."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
