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

from legacy_queue.cli.completion import complete_pools, complete_tasks
from legacy_queue.cli.tables import MAX_OPTION_WIDTH
from legacy_queue.config import SERVER_FILE, load
from legacy_queue.config.values import Value, matching, without_secrets
from legacy_queue.credentials import ANONYMOUS, Credentials
from legacy_queue.domain.hosts import is_loopback
from legacy_queue.domain.ids import TASK_ID, TASK_QUEUE_ID
from legacy_queue.private_folder import NotOurs, check_folder, read_private
from legacy_queue.queue_client import QueueClient, RequestFailed
from legacy_queue.testing.server_process import trust_variables

QUEUE_PARAMETERS = ("root_url", "base_url", "client_id", "access_token", "certificate")  # of called_queue
AnswerAndText = tuple[Any, str]  # the queue's answer for a program, and the text for a person


@contextmanager
def failing_with_a_sentence(kind: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    """If a request fails, end the command with a sentence that says why. It decorates functions too."""
    try:
        yield
    except RequestFailed as failed:
        raise kind(f"the server at {failed.server} answered {failed.status}: {failed.message}") from None
    except requests.RequestException as error:
        hint = ": see `legacy-queue ca`" if isinstance(error, requests.exceptions.SSLError) else ""
        raise kind(f"{error}{hint}") from None


def _certificate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        if value and not isinstance(json.loads(value), dict):
            raise ValueError
    except ValueError:
        raise click.BadParameter("expected a JSON object, the certificate of temporary credentials") from None
    return value


class QueueCommand(click.Command):
    """A command that calls a queue. In its help, the options that choose the queue have their own section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command, then those that say which queue it calls."""
        own: list[tuple[str, str]] = []
        of_queue: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                (of_queue if param.name in QUEUE_PARAMETERS else own).append(record)
        with formatter.section("Options"):
            formatter.write_dl(own, MAX_OPTION_WIDTH)
        with formatter.section("Which queue, if not the one that runs in this directory"):
            formatter.write_dl(of_queue, MAX_OPTION_WIDTH)


def _option(name: str, metavar: str, *envvar: str, **more: Any) -> Callable[[Any], Any]:
    return click.option(name, metavar=metavar, envvar=envvar, show_envvar=True, **more)


_ROOT_URLS = ("LEGACY_QUEUE_ROOT_URL", "TASKCLUSTER_ROOT_URL")
root_url_option = _option("--root-url", "URL", *_ROOT_URLS, help="The queue's root URL.")
_base_url_option = _option(
    "--base-url", "URL", "LEGACY_QUEUE_BASE_URL", help="Or its legacy base URL, which ends in /v1."
)
_CLIENT_OPTIONS = (
    _option("--client-id", "ID", "TASKCLUSTER_CLIENT_ID", help="The clientId to call it as."),
    _option(
        "--access-token",
        "TOKEN",
        "TASKCLUSTER_ACCESS_TOKEN",
        help="The client's accessToken. Prefer the variable: every user can read a command line.",
    ),
    _option(
        "--certificate",
        "JSON",
        "TASKCLUSTER_CERTIFICATE",
        help="The certificate, if the credentials are temporary.",
        callback=_certificate,
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_pool = matching(TASK_QUEUE_ID, "a pool: its provisionerId, a slash and its workerType", name="pool")
pool_argument = click.argument("pool", type=_pool, shell_complete=complete_pools)
pool_option = click.option(
    "--pool", type=_pool, shell_complete=complete_pools, help="Only this pool: provisionerId/workerType."
)


def id_type(name: str) -> Value:
    """The type of a taskId, or of a taskGroupId."""
    example = "such as VHL2gBZ2SI-u8RFuhXZJvQ: 22 characters as create-task prints them"
    return matching(TASK_ID, f"a {name}, {example}", name="task")


task_option = click.option(
    "--task",
    "taskId",
    type=id_type("taskId"),
    shell_complete=complete_tasks,
    help="Only requests about this task.",
)


def _is_ours(pid: Any) -> bool:
    """Whether the process is alive and belongs to this user."""
    if type(pid) is not int or not 0 < pid < 2**31:
        return False
    os.kill(pid, 0)
    return not Path("/proc/self").exists() or os.stat(f"/proc/{pid}").st_uid == os.geteuid()


def local_server() -> Mapping[str, Any]:
    """The ready line of the server that runs in this data directory; empty if none runs.

    It is believed only if a server of this user, on loopback, has written it. Otherwise standard error says
    why not. From now on the clients of this process trust the server's certificate.
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
        click.echo(f"Ignoring {error.filename}: {error.strerror}", err=True)
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
    """A client of the queue at the given URL, or else of the local queue. Raises click.UsageError.

    If ``is_anonymous``, credentials are not required, and the queue is expected on the default port if no URL
    is given and no server runs in this directory.
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
        given = base_url or root_url
        if not given:
            raise click.UsageError(
                "No queue runs in this directory: run `legacy-queue up` here, or name a queue by "
                "--root-url http://127.0.0.1:8080"
            )
        option = "--base-url" if base_url else "--root-url"
        variables = (*_ROOT_URLS, "LEGACY_QUEUE_BASE_URL")
        name = next((name for name in variables if os.environ.get(name) == given), option)
        raise click.UsageError(
            f"{name} is {without_secrets(given)!r}: expected a URL such as http://127.0.0.1:8080"
        )
    if client_id and access_token:
        return QueueClient(url, Credentials(client_id, access_token, certificate))
    if "credentials" in local and url.startswith(f"{local['rootUrl']}/"):
        return QueueClient(url, replace(Credentials.from_wire(local["credentials"]), certificate=certificate))
    if is_anonymous:
        return QueueClient(url, ANONYMOUS)
    raise click.UsageError(
        f"The queue at {without_secrets(url)} needs credentials: set TASKCLUSTER_CLIENT_ID and "
        "TASKCLUSTER_ACCESS_TOKEN, or give --client-id and --access-token"
    )


def _is_url(text: str) -> bool:
    """Whether it is the URL of a server: http or https, a host, and perhaps a port."""
    with suppress(ValueError):  # a port above 65535, half a bracket
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    return False


def called_by_default() -> str:
    """Which queue a command without options calls, as which client, and what says so; or what is missing."""
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
    """Add the options that choose a queue, and call the command with a client of it as ``queue``."""
    return _with_queue(command, (root_url_option, _base_url_option, *_CLIENT_OPTIONS))


def anonymous_queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Do the same for a command that works without credentials. It takes no base URL."""
    return _with_queue(command, (root_url_option, *_CLIENT_OPTIONS), is_anonymous=True)


def _with_queue(
    command: Callable[..., Any], options: tuple[Callable[[Any], Any], ...], *, is_anonymous: bool = False
) -> Callable[..., Any]:
    @functools.wraps(command)
    @failing_with_a_sentence()
    def with_queue(**given: Any) -> None:
        of_queue = {name: given.pop(name, None) for name in QUEUE_PARAMETERS}
        found = called_queue(**of_queue, is_anonymous=is_anonymous)
        command(queue=found, **given)

    for option in reversed(options):
        with_queue = option(with_queue)
    return with_queue


def reporting(command: Callable[..., AnswerAndText]) -> Callable[..., None]:
    """Add ``--json`` and the options that choose a queue, and print what the command returns."""

    @queue_options
    @json_option
    @functools.wraps(command)
    def report(as_json: bool, **options: Any) -> None:
        answer, text = command(**options)
        click.echo(json.dumps(answer, indent=2) if as_json else text)

    return report
