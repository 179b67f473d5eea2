"""How a command that talks to a queue is told where it is, and with which credentials; and how it asks."""

import functools
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
import requests
from click.core import ParameterSource

from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.worker import Credentials

Decorator = Callable[[Any], Any]

_LONG = 120  # seconds: reports of a large fleet, a clock that is moved by days


def identifier(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(IDENTIFIER, value):
        raise click.BadParameter(f"{value!r} is not 1 to 38 of a-z, A-Z, 0-9, - and _")
    return value


def _certificate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        if value and not isinstance(json.loads(value), dict):
            raise ValueError
    except ValueError:
        raise click.BadParameter("a certificate is a JSON object") from None
    return value


def _option(name: str, *envvar: str, **more: Any) -> Decorator:
    more = {"show_default": None if more.get("required") else "none", **more}
    return click.option(name, envvar=envvar, show_envvar=True, **more)


def root_url_option(**more: Any) -> Decorator:
    """``--root-url``, and the variables that may say it."""
    variables = ("LEGACY_QUEUE_ROOT_URL", "TASKCLUSTER_ROOT_URL")
    return _option("--root-url", *variables, help="The queue's root URL.", **more)


_OPTIONS = (
    root_url_option(),
    _option("--base-url", "LEGACY_QUEUE_BASE_URL", help="Instead: its legacy base URL, with the /v1."),
    _option("--client-id", "TASKCLUSTER_CLIENT_ID", required=True),
    _option("--access-token", "TASKCLUSTER_ACCESS_TOKEN", help="Better in the environment.", required=True),
    _option("--certificate", "TASKCLUSTER_CERTIFICATE", help="For temporary ones.", callback=_certificate),
)


def pool_options(required: bool = False) -> Decorator:
    """``--provisioner`` and ``--worker-type``."""
    more: dict[str, Any] = {"callback": identifier, "required": required}
    if not required:
        more["show_default"] = "all"
    what = "The" if required else "Only this"
    provisioner = click.option("--provisioner", help=f"{what} provisionerId.", **more)
    worker_type = click.option("--worker-type", help=f"{what} workerType.", **more)
    return lambda command: provisioner(worker_type(command))


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command a queue's ``base_url`` and ``credentials``, from options of its own."""

    @functools.wraps(command)
    def with_queue(
        root_url: str | None, base_url: str | None, certificate: str | None, **options: Any
    ) -> None:
        source = click.get_current_context().get_parameter_source
        if source("root_url") is ParameterSource.COMMANDLINE is not source("base_url"):
            base_url = None  # an option wins over a variable
        url = base_url or (root_url.rstrip("/") + "/api/queue/v1" if root_url else "")
        if not re.match(r"https?://[^/]", url):
            raise click.UsageError(
                "Say where the queue is: --root-url or --base-url, starting with http:// or https://"
            )
        credentials = Credentials(options.pop("client_id"), options.pop("access_token"), certificate)
        command(base_url=url, credentials=credentials, **options)

    for option in reversed(_OPTIONS):
        with_queue = option(with_queue)
    return with_queue


def ask(
    method: str, url: str, path: str, credentials: Credentials, timeout: float = 30, **content: Any
) -> requests.Response:
    """What the queue at ``url`` answers to a signed request; where nothing answers, the command ends."""
    sign = credentials.hawk(lambda: datetime.now(UTC))
    try:
        return requests.request(method, url + path, auth=sign, timeout=timeout, **content)
    except requests.RequestException as error:
        raise no_answer(url, error) from None


def root_of(base_url: str) -> str:
    """The root URL of the queue with this base URL, for what is not below ``/v1``."""
    return re.sub(r"(/api/queue)?/v1/?$", "", base_url)


def answer_of(
    method: str, root_url: str, path: str, credentials: Credentials, known: str = "", **content: Any
) -> Any:
    """What the queue answers on a path that not every queue has: JSON, with the property ``known``.

    A refusal ends the command with the queue's sentence.
    """
    answer = ask(method, root_url, path, credentials, _LONG, **content)
    try:
        body = answer.json()
        if answer.status_code != 200:
            raise click.ClickException(f"the queue refused with {answer.status_code}: {body['message']}")
        if isinstance(body, dict) and (not known or known in body):
            return body
    except (ValueError, KeyError, TypeError):
        pass
    raise click.ClickException(f"what answers at {root_url} is not a queue that knows this")


def no_answer(url: str, error: Exception) -> click.ClickException:
    if isinstance(error, requests.exceptions.SSLError):
        return click.ClickException(
            f"the certificate of {url} is not trusted, or is for another host: see legacy-queue ca"
        )
    return click.ClickException(f"the queue at {url} does not answer ({type(error).__name__})")
