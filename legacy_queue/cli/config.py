"""legacy-queue config: the settings in force, and the source of each."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from legacy_queue.cli.options import GENERATED, setting_options, settings_of
from legacy_queue.cli.queue_options import called_by_default
from legacy_queue.config.settings import DECLARED, wire_name
from legacy_queue.config.values import duration_text, without_secrets

_HARMLESS = ("defaultendpointsprotocol", "accountname", "endpointsuffix")
_SECRET = ("accountkey", "sharedaccesssignature")


@click.command()
@setting_options
def config(**options: str | None) -> None:
    """Print a line for each setting in force, with its source, and which queue the commands call as which
    client. Secrets are masked.
    """
    settings, sources = settings_of(options)
    for setting in DECLARED:
        name = wire_name(setting.name)
        value = getattr(settings, setting.name)
        if value is None:
            shown = "(none)"
        elif setting.name in GENERATED and not value:
            shown = "(made up for development when the server starts)"
        else:
            shown = json.dumps(_masked(setting.name, value))
        click.echo(f"{name} = {shown}  # {sources[name]}")
    click.echo(f"# commands call: {called_by_default()}")


def _masked(name: str, value: Any) -> Any:
    """The value for JSON, with its secrets masked."""
    match name, value:
        case "clients", _:
            return {client.client_id: {"accessToken": "***", "scopes": client.scopes} for client in value}
        case "signing_secrets", _:
            return ["***"] * len(value)
        case "connection_string", _:
            return ";".join(_without_key(part) for part in value.split(";"))
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
    """A part of a connection string, without secrets, also where it is malformed."""
    name, equals, value = part.partition("=")
    kind = name.strip().lower()
    is_endpoint = kind.endswith("endpoint") and re.fullmatch(
        r"\s*https?://[^?#@:/\s]+(:\d+)?(/[^?#@]*)?", value
    )
    if not part.strip() or kind in _HARMLESS or is_endpoint:
        return part
    return f"{name}{equals}***" if kind in _SECRET or kind.endswith("endpoint") else "***"
