"""The options of a queue's URL and credentials, and requests to it."""

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import requests
from click.core import ParameterSource

from legacy_queue.config import SERVER_FILE, load
from legacy_queue.config.values import without_secrets
from legacy_queue.credentials import Credentials
from legacy_queue.domain.hawk import SignedRequest, sign_bewit
from legacy_queue.domain.hosts import is_loopback
from legacy_queue.domain.ids import IDENTIFIER, TASK_QUEUE_ID
from legacy_queue.private_folder import NotOurs, check_folder, read_private
from legacy_queue.testing.server_process import trust_variables

AnswerAndText = tuple[Any, str]  # the queue's answer for a program, and the text for a person

_LONG_TIMEOUT = 120  # seconds: for reports of a large fleet, and moves of the clock by days


@dataclass(frozen=True)
class CalledQueue:
    """The queue that a command calls. A call without an answer ends the command."""

    base_url: str  # with the /v1
    credentials: Credentials

    @property
    def root_url(self) -> str:
        """For paths that are not below ``/v1``."""
        return re.sub(r"(/api/queue)?/v1/?$", "", self.base_url)

    @property
    def path(self) -> str:
        """``/api/queue/v1`` or ``/v1``."""
        return self.base_url.removeprefix(self.root_url).rstrip("/")

    def page_link(self, life: timedelta) -> str:
        """A link that signs a browser in to the page. It works for that long."""
        url = urlsplit(f"{self.root_url}/")
        port = url.port or (443 if url.scheme == "https" else 80)
        request = SignedRequest("GET", url.path, url.hostname or "", port)
        own = self.credentials
        end = datetime.now(UTC) + life
        return f"{url.geturl()}?bewit={sign_bewit(request, own.client_id, own.access_token, end, own.ext)}"

    def send(self, method: str, url: str, timeout: float = 30, **content: Any) -> requests.Response:
        """The answer to a signed request."""
        try:
            return requests.request(method, url, auth=self.credentials.sign, timeout=timeout, **content)
        except requests.RequestException as error:
            raise no_answer(self.root_url, error) from None

    def ask(self, method: str, path: str, expected: str = "", **content: Any) -> Any:
        """The JSON that the queue answers below the root URL, which has the property ``expected``.

        A refusal ends the command with the queue's sentence. So does the answer of a server that is not a
        queue.
        """
        answer = self.send(method, self.root_url + path, _LONG_TIMEOUT, **content)
        try:
            body = answer.json()
            if answer.status_code != 200 and body["message"]:
                raise refused(answer)
            if isinstance(body, dict) and (not expected or expected in body):
                return body
        except (ValueError, KeyError, TypeError):
            pass
        url = without_secrets(self.root_url)
        raise click.ClickException(f"the server at {url} is not a queue that has this endpoint")

    def download(self, url: str) -> Iterator[bytes]:
        """The body of the answer as it arrives. A refusal, and an answer that breaks off, end the command."""
        answer = self.send("GET", url, stream=True)
        if answer.status_code != 200:
            raise refused(answer)
        try:
            yield from answer.iter_content(65536)
        except requests.RequestException as error:
            where = without_secrets(self.root_url)
            raise click.ClickException(f"the answer of {where} broke off ({type(error).__name__})") from None


def refused(answer: requests.Response) -> click.ClickException:
    """The sentence for an answer that refuses: the queue's own, where it has one."""
    why = answer.reason
    with suppress(ValueError, KeyError, TypeError):
        why = answer.json()["message"]
    return click.ClickException(f"the queue refused with {answer.status_code}: {why}")


def no_answer(root_url: str, error: Exception) -> click.ClickException:
    """The sentence for a request that failed."""
    url = without_secrets(root_url)
    if isinstance(error, requests.exceptions.SSLError):
        return click.ClickException(
            f"the certificate of {url} is not trusted, or is for another host: see legacy-queue ca"
        )
    return click.ClickException(f"the queue at {url} does not answer ({type(error).__name__})")


def parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A callback of an option or argument: its parsed value, or those of a repeated option.

    The parser raises ValueError with what is accepted.
    """

    def callback(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
        if value is None or isinstance(value, tuple):
            return value and tuple(callback(_ctx, _param, text) for text in value)
        try:
            return parse(value)
        except ValueError as error:
            said = str(error)
            raise click.BadParameter(said if repr(value) in said else f"{value!r}: {said}") from None

    return callback


def matching(pattern: str, accepted: str) -> Callable[..., Any]:
    """A callback that refuses a value that the pattern does not match."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} is not {accepted}")
        return text

    return parsed(parse)


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
_OPTIONS = (
    root_url_option,
    _option("--base-url", "LEGACY_QUEUE_BASE_URL", help="Instead: the legacy base URL, with the /v1."),
    *_CLIENT_OPTIONS,
)
identifier = matching(IDENTIFIER, "1 to 38 of a-z, A-Z, 0-9, - and _")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
_pool = matching(TASK_QUEUE_ID, "a pool: provisionerId/workerType")
pool_argument = click.argument("pool", callback=_pool)
pool_option = click.option("--pool", callback=_pool, help="Only this pool.")


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
    settings, _ = load({}, os.environ)
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
) -> CalledQueue:
    """The queue at the given URL or the local one, and the client. Raises click.UsageError."""
    local = local_server()
    given = base_url or root_url
    url = base_url or (f"{root_url.rstrip('/')}/api/queue/v1" if root_url else "")
    url = url or (f"{local['rootUrl']}/api/queue/v1" if local else "")
    if not is_url(url):
        raise click.UsageError(
            f"{said_of(given) if given else ''}"
            "Give the queue's URL: --root-url or --base-url, such as http://127.0.0.1:8080; "
            "or run legacy-queue up or serve in this directory"
        )
    credentials = credentials_for(url, local, client_id, access_token, certificate)
    if credentials is None:
        raise click.UsageError(
            "Give credentials: TASKCLUSTER_CLIENT_ID and TASKCLUSTER_ACCESS_TOKEN, or --client-id and "
            "--access-token"
        )
    return CalledQueue(url, credentials)


def credentials_for(
    url: str,
    local: Mapping[str, Any],
    client_id: str | None,
    access_token: str | None,
    certificate: str | None,
) -> Credentials | None:
    """The given credentials, else those of the local server if the URL is below its root URL, else None."""
    if client_id and access_token:
        return Credentials(client_id, access_token, certificate)
    if "credentials" in local and url.startswith(f"{local['rootUrl']}/"):
        return replace(Credentials.from_wire(local["credentials"]), certificate=certificate)
    return None


def is_url(text: str) -> bool:
    """Whether a queue may be there: http or https, a host, and perhaps a port."""
    with suppress(ValueError):  # a port above 65535, half a bracket
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    return False


def said_of(url: str) -> str:
    """The sentence that begins an error about this URL: which variable has it, if one does."""
    names = (*_ROOT_URLS, "LEGACY_QUEUE_BASE_URL")
    name = next((name for name in names if os.environ.get(name) == url), "The URL")
    return f"{name} is {without_secrets(url)!r}. "


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
    return f"{queue.base_url} ({url_by}) as {queue.credentials.client_id} ({client_by})"


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a queue, and call the command with it as ``queue``."""

    @functools.wraps(command)
    def with_queue(**options: Any) -> None:
        names = ("root_url", "base_url", "client_id", "access_token", "certificate")
        given = {name: options.pop(name) for name in names}
        source = click.get_current_context().get_parameter_source
        if source("root_url") is ParameterSource.COMMANDLINE is not source("base_url"):
            given["base_url"] = None  # an option wins over a variable
        command(queue=called_queue(**given), **options)

    return _with_options(with_queue, _OPTIONS)


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--root-url`` and the options of credentials to a command that may also call without any."""
    return _with_options(command, (root_url_option, *_CLIENT_OPTIONS))


def _with_options(command: Callable[..., Any], options: Sequence[Callable[[Any], Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def reporting(command: Callable[..., AnswerAndText]) -> Callable[..., None]:
    """Add the options of a queue and ``--json``, and print what the command returns."""

    @queue_options
    @json_option
    @functools.wraps(command)
    def report(as_json: bool, **options: Any) -> None:
        answer, text = command(**options)
        click.echo(json.dumps(answer, indent=2) if as_json else text)

    return report
