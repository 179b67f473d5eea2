"""Clients of 2015 to 2018 as they are, under one face: each method of the queue by its own name."""

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


class Npm:
    """taskcluster-client in a Node of its own."""

    def __init__(self, options: Mapping[str, Any], node: "subprocess.Popen[str]") -> None:
        self._options, self._node = options, node

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
        pages = [self.call(method, *args, query)]
        while token := pages[-1].get("continuationToken"):
            pages.append(self.call(method, *args, {**query, "continuationToken": token}))
        return pages

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

    def upload(
        self, task_id: str, run_id: str, name: str, body: Mapping[str, Any], file: Mapping[str, Any]
    ) -> list[str]:
        """A blob by remotely-signed-s3, from createArtifact to completeArtifact; the ETags of its uploads.

        ``file`` has its name and, where it is wanted, compression and partSize (bytes).
        """
        return list(self._do("upload", None, task_id, run_id, name, body, file))

    def _do(
        self,
        job: str,
        method: str | None,
        *args: Any,
        credentials: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        assert self._node.stdin
        assert self._node.stdout
        given = dict(credentials or self._options["credentials"])
        options = {**self._options, "credentials": given, **options}
        self._node.stdin.write(
            json.dumps({"job": job, "options": options, "method": method, "args": args}) + "\n"
        )
        self._node.stdin.flush()
        line = self._node.stdout.readline()  # ends with Node at the latest, and Node's own requests end
        assert line, f"the JavaScript client could not do {job} {method}: see standard error"
        result = json.loads(line)
        if "refused" in result:
            raise Refused(result["refused"]["status"], result["refused"]["body"])
        return result.get("answer")


def refusal(call: Callable[..., object], *args: Any, **options: Any) -> tuple[int, str]:
    """Status and code of what a client's method must raise."""
    with pytest.raises(Refused) as refused:
        call(*args, **options)
    return refused.value.status, refused.value.code


@contextmanager
def real_client(
    name: str, server: Server, credentials: Mapping[str, str] | None = None
) -> Iterator[RealClient]:
    """One of CLIENTS."""
    if name.startswith("pypi"):
        yield PyPI(server, credentials)
    else:
        with npm(server, name.removeprefix("npm-").partition(".")[0], credentials) as client:
            yield client


@contextmanager
def npm(server: Server, version: str, credentials: Mapping[str, str] | None = None) -> Iterator[Npm]:
    """Version 4 takes the base URL, version 11 the root URL."""
    if not (_CLIENTS / "node_modules").is_dir():
        pytest.fail(f"{_CLIENTS}/node_modules is missing: scripts/test makes it, and so does `npm ci` there.")
    try:
        node = find_node(os.environ.get("LEGACY_QUEUE_NODE"))
    except NodeUnavailable as error:
        pytest.fail(f"The JavaScript clients cannot run. {error}")
    where = {"baseUrl": server.base_url} if version == "4" else {"rootUrl": server.root_url}
    options = {**where, "credentials": dict(credentials or server.credentials)}
    with subprocess.Popen(
        [node, _CLIENTS / "call.js", version], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Npm(options, process)
        finally:
            process.kill()
            process.wait(LONG)
