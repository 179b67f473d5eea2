"""legacy-queue config: what is in force, and where it was found."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from legacy_queue.cli.options import MADE_UP, setting_options, settings_of
from legacy_queue.config.settings import DECLARED, wire_name
from legacy_queue.config.values import duration_text, without_secrets

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
    settings, sources = settings_of(options)
    for one in DECLARED:
        name, value = wire_name(one.name), getattr(settings, one.name)
        if value is None:
            shown = "(none)"
        elif one.name in MADE_UP and not value:
            shown = "(made up for development when the server starts)"
        else:
            shown = json.dumps(_harmless(one.name, value))
        click.echo(f"{name} = {shown}  # {sources[name]}")


def _harmless(name: str, value: Any) -> Any:
    """The value as JSON has it, with its secrets masked."""
    match name, value:
        case "clients", _:
            return {one.client_id: {"accessToken": "***", "scopes": one.scopes} for one in value}
        case "signing_secrets", _:
            return ["***"] * len(value)
        case "s3_secret_access_key", _:
            return "***"
        case "connection_string", _:
            return ";".join(_without_key(part) for part in value.split(";"))
        case _, timedelta():
            return duration_text(value)
        case _, Path():
            return str(value)
        case _, str():
            return without_secrets(value)
    return value


def _without_key(part: str) -> str:
    harmless = _HARMLESS.match(part)
    shown = harmless[0] if harmless else ""
    return shown if shown == part else f"{shown}***"
