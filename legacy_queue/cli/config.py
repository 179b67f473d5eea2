"""legacy-queue config: what is in force, and where it was found."""

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.config.settings import DECLARED, wire_name
from legacy_queue.config.values import without_secrets
from legacy_queue.domain.credentials import Client

# of one part of a connection string, what may be shown
_HARMLESS = re.compile(
    r"\s*(?:(?:DefaultEndpointsProtocol|AccountName|EndpointSuffix)\s*=[^?]*"
    r"|[a-z]+Endpoint\s*=(?:\s*https?://[^?#@:/\s]+(?::\d+)?(?:/[^?#@]*)?(?=[?#]|$))?"
    r"|(?:AccountKey|SharedAccessSignature)\s*=)?",
    re.IGNORECASE,
)


@click.command()
@setting_options
def config(**options: str | None) -> None:
    """Print the settings in force, one a line, each with where it was found. Secrets are masked."""
    settings, sources = settings_of(options, os.environ)
    for one in DECLARED:
        name, value = wire_name(one.name), getattr(settings, one.name)
        shown = _masked(one.name, value) if one.metadata["secret"] else _shown(value)
        click.echo(f"{name} = {shown}  # {sources[name]}")


def _shown(value: Any) -> str:
    match value:
        case timedelta():
            return json.dumps(_duration(value))
        case Path():
            return json.dumps(str(value))
        case str():
            return json.dumps(without_secrets(value))
        case None:
            return "(none)"
    return json.dumps(value)


def _duration(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    unit, size = next((u, s) for u, s in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)) if seconds % s == 0)
    return f"{seconds // size}{unit}"


def _masked(name: str, value: Any) -> str:
    match name, value:
        case "connection_string", str():
            return json.dumps(";".join(_without_key(part) for part in value.split(";")))
        case "clients", (Client(), *_):
            shown = {client.client_id: {"accessToken": "***", "scopes": client.scopes} for client in value}
            return json.dumps(shown)
        case "clients" | "signing_secrets", ():
            return "(made up for development when the server starts)"
        case "s3_secret_access_key", str():
            return json.dumps("***")
        case "signing_secrets", _:
            return json.dumps(["***"] * len(value))
    return _shown(value)


def _without_key(part: str) -> str:
    harmless = _HARMLESS.match(part)
    shown = harmless[0] if harmless else ""
    return shown if shown == part else f"{shown}***"
