"""Clients as they are, of 2015 to 2018 and of today, under one face: each method by its own name."""

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from legacy_queue.adapters.npm import NodeUnavailable, find_node
from tests.clients.python import taskcluster

from .processes import LONG, Server

CLIENTS = ("pypi-3.0.2", "npm-4.1.0", "npm-11.0.0")
TODAY = ("pypi-113.2.0", "npm-87.1.3")  # they know no pollTaskUrls

_CLIENTS = Path(__file__).parents[1] / "clients"


class Refused(Exception):
    """The server answered with this status and body, and so this code; "" where there is none."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status, self.body, self.code = status, body, str(body.get("code", ""))
        super().__init__(f"{status} {self.code}")


class RealClient(Protocol):
    """Without credentials, a method's are those that the client was made with."""

    def call(
        self,
        method: str,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        authorized_scopes: Sequence[str] | None = None,
    ) -> Any:
        """What the client answers; raises Refused. ``authorized_scopes``: all that the call may use."""

    def pages(self, method: str, *args: Any, **query: Any) -> list[Any]:
        """The answers of a method that lists, as long as there are more."""

    def url(self, method: str, *args: Any) -> str:
        """Where a method that is a GET is."""

    def signed_url(
        self, method: str, *args: Any, life: int = 60, credentials: Mapping[str, str] | None = None
    ) -> str:
        """The same, with a bewit that is good for ``life`` seconds."""

    def temporary(
        self,
        scopes: Sequence[str],
        *,
        start: timedelta = timedelta(minutes=-1),
        expiry: timedelta = timedelta(hours=1),
        name: str | None = None,
        issuer: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Temporary credentials, made by the client without the server; times are from now."""


class PyPI:
    """taskcluster 3.0.2."""

    def __init__(self, server: Server, credentials: Mapping[str, str] | None = None) -> None:
        self._server, self._credentials = server, credentials or server.credentials

    def call(
        self,
        method: str,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        authorized_scopes: Sequence[str] | None = None,
    ) -> Any:
        with self._queue(credentials, authorized_scopes) as queue:
            return getattr(queue, method)(*args)

    def pages(self, method: str, *args: Any, **query: Any) -> list[Any]:
        pages: list[Any] = []
        with self._queue() as queue:
            getattr(queue, method)(
                params=dict(zip(queue.funcinfo[method]["args"], args, strict=True)),
                query=query,
                paginationHandler=lambda page: pages.append(page),
            )
        return pages

    def url(self, method: str, *args: Any) -> str:
        with self._queue() as queue:
            return str(queue.buildUrl(method, *args))

    def signed_url(
        self, method: str, *args: Any, life: int = 60, credentials: Mapping[str, str] | None = None
    ) -> str:
        options = {"signedUrlExpiration": life}  # an argument for it is taken for one of the method's
        with self._queue(credentials, **options) as queue:
            return str(queue.buildSignedUrl(method, *args))

    def temporary(
        self,
        scopes: Sequence[str],
        *,
        start: timedelta = timedelta(minutes=-1),
        expiry: timedelta = timedelta(hours=1),
        name: str | None = None,
        issuer: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        issuer, now = issuer or self._credentials, datetime.now(UTC)
        made = taskcluster.client.createTemporaryCredentials(
            issuer["clientId"], issuer["accessToken"], now + start, now + expiry, list(scopes), name
        )
        return {key: taskcluster.utils.toStr(value) for key, value in made.items()}

    @contextmanager
    def _queue(
        self,
        credentials: Mapping[str, str] | None = None,
        authorized_scopes: Sequence[str] | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """What the server refuses to the client is raised as Refused."""
        if authorized_scopes is not None:
            options["authorizedScopes"] = authorized_scopes
        # it encodes the values of the dictionary that it is given
        given = dict(credentials or self._credentials)
        queue = taskcluster.Queue({"baseUrl": self._server.base_url, "credentials": given, **options})
        try:
            yield queue
        except (
            taskcluster.exceptions.TaskclusterRestFailure,
            taskcluster.exceptions.TaskclusterAuthFailure,
        ) as failure:
            raise Refused(failure.status_code, failure.body) from None
        finally:
            queue.session.close()


class Called:
    """A client in a process of its own, which `call.js` or `call.py` lets it be called from here."""

    def __init__(self, options: Mapping[str, Any], process: "subprocess.Popen[str]") -> None:
        self._options, self._process = options, process

    def call(
        self,
        method: str,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        authorized_scopes: Sequence[str] | None = None,
    ) -> Any:
        scopes = {} if authorized_scopes is None else {"authorizedScopes": authorized_scopes}
        return self._do("call", method, *args, credentials=credentials, **scopes)

    def pages(self, method: str, *args: Any, **query: Any) -> list[Any]:
        pages = [self._do("call", method, *args, query=query)]
        while token := pages[-1].get("continuationToken"):
            pages.append(self._do("call", method, *args, query={**query, "continuationToken": token}))
        return pages

    def methods(self) -> dict[str, list[str]]:
        """The HTTP method and the route of each method that it knows; of the newest clients."""
        return dict(self._do("methods", None))

    def put_object(self, task_id: str, run_id: str, name: str, body: Mapping[str, Any], data: bytes) -> None:
        """An artifact of the storage type object, by the newest clients' own upload."""
        self._do("putObject", None, task_id, run_id, name, body, base64.b64encode(data).decode())

    def download(self, task_id: str, run_id: str | None, name: str) -> tuple[bytes, str] | str:
        """Content and type, by the newest clients' own download; of an error its reason."""
        found = self._do("download", None, task_id, run_id, name)
        return found.get("reason") or (base64.b64decode(found["content"]), found["contentType"])

    def url(self, method: str, *args: Any) -> str:
        return str(self._do("url", method, *args))

    def signed_url(
        self, method: str, *args: Any, life: int = 60, credentials: Mapping[str, str] | None = None
    ) -> str:
        return str(self._do("signedUrl", method, *args, {"expiration": life}, credentials=credentials))

    def temporary(
        self,
        scopes: Sequence[str],
        *,
        start: timedelta = timedelta(minutes=-1),
        expiry: timedelta = timedelta(hours=1),
        name: str | None = None,
        issuer: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        now = datetime.now(UTC)
        wanted = {
            "scopes": scopes,
            **{
                name: int((now + time).timestamp() * 1000)
                for name, time in (("start", start), ("expiry", expiry))
            },
            **({"clientId": name} if name else {}),
        }
        return dict(self._do("credentials", None, wanted, credentials=issuer))

    def _do(
        self,
        job: str,
        method: str | None,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        given = dict(credentials or self._options["credentials"])
        options = {**self._options, "credentials": given, **options}
        wanted = {"job": job, "options": options, "method": method, "args": args, "query": query}
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        line = (
            self._process.stdout.readline()
        )  # ends with the process at the latest, and its own requests end
        assert line, f"the client could not do {job} {method}: see standard error"
        result = json.loads(line)
        if "refused" in result:
            raise Refused(result["refused"]["status"], result["refused"]["body"])
        return result.get("answer")


class Npm(Called):
    """taskcluster-client in a Node of its own."""

    def upload(
        self, task_id: str, run_id: str, name: str, body: Mapping[str, Any], file: Mapping[str, Any]
    ) -> list[str]:
        """A blob by remotely-signed-s3, from createArtifact to completeArtifact; the ETags of its uploads.

        ``file`` has its name and, where it is wanted, compression and partSize (bytes).
        """
        return list(self._do("upload", None, task_id, run_id, name, body, file))


def refusal(call: Callable[..., object], *args: Any, **options: Any) -> tuple[int, str]:
    """Status and code of what a client's method must raise."""
    with pytest.raises(Refused) as refused:
        call(*args, **options)
    return refused.value.status, refused.value.code


@contextmanager
def real_client(
    name: str, server: Server, credentials: Mapping[str, str] | None = None
) -> Iterator[RealClient]:
    """One of CLIENTS or TODAY."""
    package, _, version = name.partition("-")
    if package == "npm":
        with npm(server, version.partition(".")[0], credentials) as client:
            yield client
    elif name in TODAY:
        with _called([python_of_today(), _CLIENTS / "call.py"], server, credentials) as process:
            yield Called(*process)
    else:
        yield PyPI(server, credentials)


@contextmanager
def npm(server: Server, version: str, credentials: Mapping[str, str] | None = None) -> Iterator[Npm]:
    """Version 4 takes the base URL, later ones the root URL."""
    command = [node(), _CLIENTS / "call.js", version]
    with _called(command, server, credentials, knows_root_url=version != "4") as process:
        yield Npm(*process)


def python_of_today() -> Path:
    """The Python that has the newest client."""
    python = _CLIENTS / ".venv/bin/python"
    if not python.exists():
        pytest.fail(f"{python} is missing: scripts/test makes it.")
    return python


def node() -> str:
    """The Node that has the JavaScript clients."""
    if not (_CLIENTS / "node_modules").is_dir():
        pytest.fail(f"{_CLIENTS}/node_modules is missing: scripts/test makes it, and so does `npm ci` there.")
    try:
        return find_node(os.environ.get("LEGACY_QUEUE_NODE"))
    except NodeUnavailable as error:
        pytest.fail(f"The JavaScript clients cannot run. {error}")


@contextmanager
def _called(
    command: Sequence[str | Path],
    server: Server,
    credentials: Mapping[str, str] | None,
    *,
    knows_root_url: bool = True,
) -> Iterator[tuple[dict[str, Any], "subprocess.Popen[str]"]]:
    where = {"rootUrl": server.root_url} if knows_root_url else {"baseUrl": server.base_url}
    options = {**where, "credentials": dict(credentials or server.credentials)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield options, process
        finally:
            process.kill()
            process.wait(LONG)
