"""Unchanged clients of 2015 to 2018 and of today, behind one interface."""

import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.clients.python import taskcluster

from .processes import LONG, Server

CLIENTS = ("pypi-3.0.2", "npm-4.1.0", "npm-11.0.0")
TODAY = ("pypi-113.2.0", "npm-87.1.3")  # without pollTaskUrls

_CLIENTS = Path(__file__).parents[1] / "clients"


class Refused(Exception):
    """The server answered with this status and body; ``code`` is "" if the body has none."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status, self.body, self.code = status, body, str(body.get("code", ""))
        super().__init__(f"{status} {self.code}")


class RealClient(Protocol):
    """Without ``credentials``, a call uses those of the client."""

    def call(
        self,
        method: str,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        authorized_scopes: Sequence[str] | None = None,
    ) -> Any:
        """The answer; raises Refused. ``authorized_scopes`` restrict the scopes of the call."""

    def pages(self, method: str, *args: Any, **query: Any) -> list[Any]:
        """All pages of a list."""

    def url(self, method: str, *args: Any) -> str:
        """The URL of a GET method."""

    def signed_url(
        self, method: str, *args: Any, life: int = 60, credentials: Mapping[str, str] | None = None
    ) -> str:
        """The URL of a GET method, with a bewit that is valid for ``life`` seconds."""

    def temporary(
        self,
        scopes: Sequence[str],
        *,
        start: timedelta = timedelta(minutes=-1),
        expiry: timedelta = timedelta(hours=1),
        name: str | None = None,
        issuer: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Temporary credentials, which the client makes without the server; times are from now."""


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
        # as an option: the client takes an argument for one of the method
        with self._queue(credentials, signedUrlExpiration=life) as queue:
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
        """The client; raises Refused for an error of the server."""
        if authorized_scopes is not None:
            options["authorizedScopes"] = authorized_scopes
        # a copy, since the client encodes its values in place
        own = dict(credentials or self._credentials)
        queue = taskcluster.Queue({"baseUrl": self._server.base_url, "credentials": own, **options})
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
    """A client in a process of its own, behind `call.js` or `call.py`."""

    def __init__(self, options: Mapping[str, Any], process: "subprocess.Popen[str]") -> None:
        self._options, self._process = options, process

    def call(
        self,
        method: str,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        authorized_scopes: Sequence[str] | None = None,
    ) -> Any:
        options = {} if authorized_scopes is None else {"authorizedScopes": authorized_scopes}
        return self._do("call", method, *args, credentials=credentials, options=options)

    def pages(self, method: str, *args: Any, **query: Any) -> list[Any]:
        pages = [self._do("call", method, *args, query=query)]
        while token := pages[-1].get("continuationToken"):
            pages.append(self._do("call", method, *args, query={**query, "continuationToken": token}))
        return pages

    def methods(self) -> dict[str, list[str]]:
        """The HTTP method and the route of each method (newest clients only)."""
        return dict(self._do("methods", None))

    def put_object(self, task_id: str, run_id: str, name: str, body: Mapping[str, Any], data: bytes) -> None:
        """Create and upload an artifact of the storage type object (newest clients only)."""
        self._do("putObject", None, task_id, run_id, name, body, base64.b64encode(data).decode())

    def download(self, task_id: str, run_id: str | None, name: str) -> tuple[bytes, str]:
        """Download an artifact: content and type (newest clients only)."""
        downloaded = self._do("download", None, task_id, run_id, name)
        return base64.b64decode(downloaded["content"]), downloaded["contentType"]

    def download_error(self, task_id: str, run_id: str | None, name: str) -> str:
        """The reason of an error artifact (newest clients only)."""
        return str(self._do("download", None, task_id, run_id, name)["reason"])

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
        terms = {
            "scopes": scopes,
            **{
                name: int((now + time).timestamp() * 1000)
                for name, time in (("start", start), ("expiry", expiry))
            },
            **({"clientId": name} if name else {}),
        }
        return dict(self._do("credentials", None, terms, credentials=issuer))

    def _do(
        self,
        job: str,
        method: str | None,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        own = dict(credentials or self._options["credentials"])
        options = {**self._options, "credentials": own, **(options or {})}
        request = {"job": job, "options": options, "method": method, "args": args, "query": query}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()  # the client's own timeout ends it
        assert line, f"the client could not do {job} {method}: see standard error"
        result = json.loads(line)
        if "refused" in result:
            raise Refused(result["refused"]["status"], result["refused"]["body"])
        return result.get("answer")


class Npm(Called):
    """taskcluster-client, in Node."""

    def upload(
        self, task_id: str, run_id: str, name: str, body: Mapping[str, Any], file: Mapping[str, Any]
    ) -> list[str]:
        """Create, upload (remotely-signed-s3) and complete a blob; returns the ETags of its uploads.

        ``file`` has name and, optionally, compression and partSize (bytes).
        """
        return list(self._do("upload", None, task_id, run_id, name, body, file))


def refusal(call: Callable[..., object], *args: Any, **options: Any) -> tuple[int, str]:
    """Call, assert that it raises Refused, and return its status and code."""
    with pytest.raises(Refused) as refused:
        call(*args, **options)
    return refused.value.status, refused.value.code


@contextmanager
def real_client(
    name: str, server: Server, credentials: Mapping[str, str] | None = None
) -> Iterator[RealClient]:
    """A client by its name in CLIENTS or TODAY."""
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
    if not (_CLIENTS / "node_modules").is_dir():
        pytest.fail(f"{_CLIENTS}/node_modules is missing: scripts/install --services makes it.")
    command: list[str | Path] = ["node", _CLIENTS / "call.js", version]
    with _called(command, server, credentials, has_root_url=version != "4") as process:
        yield Npm(*process)


def python_of_today() -> Path:
    """The Python with the newest client."""
    python = _CLIENTS / ".venv/bin/python"
    if not python.exists():
        pytest.fail(f"{python} is missing: scripts/install --services makes it.")
    return python


@contextmanager
def _called(
    command: Sequence[str | Path],
    server: Server,
    credentials: Mapping[str, str] | None,
    *,
    has_root_url: bool = True,
) -> Iterator[tuple[dict[str, Any], "subprocess.Popen[str]"]]:
    url = {"rootUrl": server.root_url} if has_root_url else {"baseUrl": server.base_url}
    options = {**url, "credentials": dict(credentials or server.credentials)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield options, process
        finally:
            process.kill()
            process.wait(LONG)
