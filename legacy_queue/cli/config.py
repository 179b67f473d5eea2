"""legacy-queue config, env and queues: the settings in force, and the names of things."""

import json
import re
import shlex
from dataclasses import Field
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from legacy_queue.cli.options import SettingsCommand, pass_given
from legacy_queue.cli.queue_options import called_by_default, local_server, pool_argument
from legacy_queue.config import GivenSettings
from legacy_queue.config.settings import DECLARED, wire_name
from legacy_queue.config.values import duration_text, without_secrets
from legacy_queue.domain.priority import work_queues
from legacy_queue.testing.server_process import client_variables

_HARMLESS = ("defaultendpointsprotocol", "accountname", "endpointsuffix")
_SECRET = ("accountkey", "sharedaccesssignature")


@click.command(cls=SettingsCommand)
@pass_given
def config(given: GivenSettings) -> None:
    """Print every setting in force and where it comes from. Secrets are masked.

    The last line says which queue the commands call from here, and as which client.
    """
    settings = given.settings()
    for setting in DECLARED:
        name = wire_name(setting.name)
        value = getattr(settings, setting.name)
        if value is None:
            shown = "(none)"
        elif setting.metadata["generated"] and not value:
            shown = "(generated for development when the server starts)"
        else:
            shown = json.dumps(_masked(setting, value))
        click.echo(f"{name} = {shown}  # {given.sources.get(setting.name, 'default')}")
    click.echo(f"# commands call: {called_by_default()}")


def _masked(setting: Field[Any], value: Any) -> Any:
    """The value for JSON, with secrets masked. Only those parts of a secret that are harmless are shown."""
    match setting.name, value:
        case "clients", _:
            return {client.client_id: {"accessToken": "***", "scopes": client.scopes} for client in value}
        case "signing_secrets", _:
            return ["***"] * len(value)
        case "connection_string", _:
            return ";".join(_without_key(part) for part in value.split(";"))
        case "amqp_url", _:
            return without_secrets(value)
        case _ if setting.metadata["secret"]:
            return "***"
        case "trusted_proxy", _:
            return [str(network) for network in value]
        case _, timedelta():
            return duration_text(value)
        case _, Path():
            return str(value)
        case _, str():
            return without_secrets(value)
    return value


def _without_key(part: str) -> str:
    """A part of a connection string without its secrets, even if the string is malformed."""
    name, equals, value = part.partition("=")
    kind = name.strip().lower()
    is_endpoint = kind.endswith("endpoint") and re.fullmatch(
        r"\s*https?://[^?#@:/\s]+(:\d+)?(/[^?#@]*)?", value
    )
    if not part.strip() or kind in _HARMLESS or is_endpoint:
        return part
    return f"{name}{equals}***" if kind in _SECRET or kind.endswith("endpoint") else "***"


@click.command()
def env() -> None:
    """Print variables for a shell that lead clients to the queue: eval "$(legacy-queue env)".

    They contain its URL, credentials and certificates. Run the command where the queue runs, or set
    LEGACY_QUEUE_DATA_DIR to the queue's data directory.
    """
    ready = local_server()
    if not ready:
        raise click.UsageError(
            "No queue runs in this directory: run `legacy-queue up` here, or set LEGACY_QUEUE_DATA_DIR to "
            "the data directory of a running queue"
        )
    variables = {"LEGACY_QUEUE_ROOT_URL": ready["rootUrl"], **client_variables(ready)}
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")


@click.command(cls=SettingsCommand, uses=("queue_prefix",))
@pool_argument
@pass_given
def queues(given: GivenSettings, pool: str) -> None:
    """Print the priority and the name of each Azure queue of a pool, the highest priority first.

    The names depend only on the pool and the setting queue-prefix. The command does not check whether the
    queues exist: the server creates a queue when it is first used.
    """
    prefix = given.settings().queue_prefix
    for queue in work_queues(*pool.split("/")):
        click.echo(f"{queue.priority:<10} {queue.name(prefix)}")
