"""Which queue a command calls: by its options, the environment, or the server of this directory."""

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import requests
from click.core import ParameterSource

from legacy_queue.config import SERVER_FILE, load
from legacy_queue.config.values import matching, without_secrets
from legacy_queue.credentials import ANONYMOUS, Credentials
from legacy_queue.domain.hosts import is_loopback
from legacy_queue.domain.ids import IDENTIFIER, TASK_QUEUE_ID
from legacy_queue.private_folder import NotOurs, check_folder, read_private
from legacy_queue.queue_client import QueueClient, RequestFailed
from legacy_queue.testing.server_process import trust_variables

AnswerAndText = tuple[Any, str]  # the queue's answer for a program, and the text for a person


@contextmanager
def failing_with_a_sentence(kind: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """A request that fails ends the command with a sentence. Decorates a function too."""
    try:
        yield
    except RequestFailed as failed:
        raise kind(f"the server at {failed.server} answered {failed.status}: {failed.message}") from None
    except requests.RequestException as error:
        hint = ": see legacy-queue ca" if isinstance(error, requests.exceptions.SSLError) else ""
        raise kind(f"{error}{hint}") from None


def _certificate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        if value and not isinstance(json.loads(value), dict):
            raise ValueError
    except ValueError:
        raise click.BadParameter("a certificate is a JSON object") from None
    return value


def _option(name: str, *envvar: str, **more: Any) -> Callable[[Any], Any]:
    more = {"show_default": f"that of {SERVER_FILE}", **more}
    return click.option(name, envvar=envvar, show_envvar=True, **more)


_ROOT_URLS = ("LEGACY_QUEUE_ROOT_URL", "TASKCLUSTER_ROOT_URL")
root_url_option = _option("--root-url", *_ROOT_URLS, help="The queue's root URL.")
_base_url_option = _option(
    "--base-url", "LEGACY_QUEUE_BASE_URL", help="Instead: the legacy base URL, with the /v1."
)
_CLIENT_OPTIONS = (
    _option("--client-id", "TASKCLUSTER_CLIENT_ID"),
    _option("--access-token", "TASKCLUSTER_ACCESS_TOKEN", help="Better in the environment."),
    _option(
        "--certificate",
        "TASKCLUSTER_CERTIFICATE",
        help="The certificate of temporary credentials.",
        show_default="none",
        callback=_certificate,
    ),
)
identifier = matching(IDENTIFIER, "1 to 38 of a-z, A-Z, 0-9, - and _")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_pool = matching(TASK_QUEUE_ID, "a pool: provisionerId/workerType")
pool_argument = click.argument("pool", type=_pool)
pool_option = click.option("--pool", type=_pool, help="Only this pool.")


def _is_ours(pid: Any) -> bool:
    """Whether the process lives and is this user's."""
    if type(pid) is not int or not 0 < pid < 2**31:
        return False
    os.kill(pid, 0)
    return not Path("/proc/self").exists() or os.stat(f"/proc/{pid}").st_uid == os.geteuid()


def local_server() -> Mapping[str, Any]:
    """What the server of this data directory has written: its ready line. Empty where none runs.

    It is followed only if this user's own server, on loopback, has written it; else a sentence says why not.
    The clients of this process trust its certificate from now on.
    """
    settings = load().settings()
    path = settings.data_dir / SERVER_FILE
    try:
        check_folder(settings.data_dir)
        ready: dict[str, Any] = json.loads(read_private(path))
        if not _is_ours(ready["pid"]):
            return {}
        root_url = urlsplit(ready["rootUrl"])
        is_plain = re.fullmatch(r"https?://[\w.:\[\]-]+", ready["rootUrl"])
        if not is_plain or not is_loopback(root_url.hostname or ""):
            raise NotOurs(path, f"{without_secrets(ready['rootUrl'])} is not on loopback")
        if "credentials" in ready:
            Credentials.from_wire(ready["credentials"])
    except PermissionError as error:  # NotOurs too
        click.echo(f"{error.filename} is not followed: {error.strerror}", err=True)
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    for name, value in trust_variables(ready).items():
        os.environ.setdefault(name, value)
    return ready


def called_queue(
    root_url: str | None,
    base_url: str | None,
    client_id: str | None,
    access_token: str | None,
    certificate: str | None = None,
    *,
    is_anonymous: bool = False,
) -> QueueClient:
    """The queue at the given URL or the local one, and the client. Raises click.UsageError.

    Who may be anonymous needs no credentials, and looks for a queue that was not given on the default port.
    """
    local = local_server()
    context = click.get_current_context(silent=True)
    if context and context.get_parameter_source("root_url") is ParameterSource.COMMANDLINE:
        # an option wins over a variable
        base_url = (
            base_url if context.get_parameter_source("base_url") is ParameterSource.COMMANDLINE else None
        )
    default = local.get("rootUrl", "http://127.0.0.1:8080" if is_anonymous else "")
    url = base_url or f"{(root_url or default).rstrip('/')}/api/queue/v1"
    if not _is_url(url):
        given = base_url or root_url or ""
        names = (*_ROOT_URLS, "LEGACY_QUEUE_BASE_URL")
        name = next((name for name in names if given and os.environ.get(name) == given), "The URL")
        said = f"{name} is {without_secrets(given)!r}. " if given else ""
        raise click.UsageError(
            f"{said}Give the queue's URL, such as --root-url http://127.0.0.1:8080; "
            "or run legacy-queue up or serve in this directory"
        )
    if client_id and access_token:
        return QueueClient(url, Credentials(client_id, access_token, certificate))
    if "credentials" in local and url.startswith(f"{local['rootUrl']}/"):
        return QueueClient(url, replace(Credentials.from_wire(local["credentials"]), certificate=certificate))
    if is_anonymous:
        return QueueClient(url, ANONYMOUS)
    raise click.UsageError(
        "Give credentials: TASKCLUSTER_CLIENT_ID and TASKCLUSTER_ACCESS_TOKEN, or --client-id and "
        "--access-token"
    )


def _is_url(text: str) -> bool:
    """Whether a queue may be there: http or https, a host, and perhaps a port."""
    with suppress(ValueError):  # a port above 65535, half a bracket
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    return False


def called_by_default() -> str:
    """Which queue a command without options calls, as which client, and who says so; or what is missing."""
    root_url = next((name for name in _ROOT_URLS if os.environ.get(name)), "")
    names = root_url, "LEGACY_QUEUE_BASE_URL", "TASKCLUSTER_CLIENT_ID", "TASKCLUSTER_ACCESS_TOKEN"
    values = [os.environ.get(name) for name in names]
    try:
        queue = called_queue(*values)
    except click.ClickException as missing:
        return missing.message
    url_by = names[1] if values[1] else root_url or SERVER_FILE
    client_by = names[2] if values[2] and values[3] else SERVER_FILE
    return f"{without_secrets(queue.base_url)} ({url_by}) as {queue.credentials.client_id} ({client_by})"


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a queue, and call the command with it as ``queue``."""
    return _with_queue(command, (root_url_option, _base_url_option, *_CLIENT_OPTIONS))


def anonymous_queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that may call without credentials. It takes no base URL."""
    return _with_queue(command, (root_url_option, *_CLIENT_OPTIONS), is_anonymous=True)


def _with_queue(
    command: Callable[..., Any], options: tuple[Callable[[Any], Any], ...], *, is_anonymous: bool = False
) -> Callable[..., Any]:
    @functools.wraps(command)
    @failing_with_a_sentence()
    def with_queue(**given: Any) -> None:
        names = ("root_url", "base_url", "client_id", "access_token", "certificate")
        found = called_queue(**{name: given.pop(name, None) for name in names}, is_anonymous=is_anonymous)
        command(queue=found, **given)

    for option in reversed(options):
        with_queue = option(with_queue)
    return with_queue


def reporting(command: Callable[..., AnswerAndText]) -> Callable[..., None]:
    """Add the options of a queue and ``--json``, and print what the command returns."""

    @queue_options
    @json_option
    @functools.wraps(command)
    def report(as_json: bool, **options: Any) -> None:
        answer, text = command(**options)
        click.echo(json.dumps(answer, indent=2) if as_json else text)

    return report
