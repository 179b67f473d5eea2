"""How a command that talks to a queue is told where it is, and with which credentials."""

import json
import re
from collections.abc import Callable
from typing import Any

import click

from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.worker import Credentials
from legacy_queue.worker.settings import base_url_of


def identifier(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(IDENTIFIER, value):
        raise click.BadParameter(f"{value!r} is not 1 to 22 of a-z, A-Z, 0-9, - and _")
    return value


def _certificate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        if value and not isinstance(json.loads(value), dict):
            raise ValueError
    except ValueError:
        raise click.BadParameter("a certificate is a JSON object") from None
    return value


def root_url_option(default: str | None = None) -> Callable[[Any], Any]:
    """``--root-url``, and the variables that may say it."""
    return click.option(
        "--root-url",
        envvar=["LEGACY_QUEUE_ROOT_URL", "TASKCLUSTER_ROOT_URL"],
        default=default,
        show_envvar=True,
        show_default=default is not None,
        help="The queue's root URL.",
    )


_OPTIONS = (
    root_url_option(),
    click.option(
        "--base-url",
        envvar="LEGACY_QUEUE_BASE_URL",
        show_envvar=True,
        help="Instead: its legacy base URL, with the /v1.",
    ),
    click.option("--client-id", envvar="TASKCLUSTER_CLIENT_ID", show_envvar=True, required=True),
    click.option(
        "--access-token",
        envvar="TASKCLUSTER_ACCESS_TOKEN",
        show_envvar=True,
        required=True,
        help="Better in the environment.",
    ),
    click.option(
        "--certificate",
        envvar="TASKCLUSTER_CERTIFICATE",
        show_envvar=True,
        callback=_certificate,
        help="For temporary ones.",
    ),
)


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command the options that ``queue_of`` reads."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def queue_of(
    root_url: str | None,
    base_url: str | None,
    client_id: str | None,
    access_token: str | None,
    certificate: str | None,
) -> tuple[str, Credentials]:
    """The queue's base URL, and the credentials; a mistake ends the command with a sentence."""
    url = base_url or (base_url_of(root_url) if root_url else "")
    if not re.match(r"https?://[^/]", url):
        raise click.UsageError(
            "Say where the queue is: --root-url or --base-url, starting with http:// or https://"
        )
    return url, Credentials(client_id or "", access_token or "", certificate)
