"""Clients of 2015 to 2018 as they are, under one face: each method of the queue by its own name."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from legacy_queue.adapters.node import NodeUnavailable, find_node
from tests.clients.python import taskcluster

from .processes import LONG, Server

CLIENTS = ("pypi-3.0.2", "npm-4.1.0", "npm-11.0.0")

_CLIENTS = Path(__file__).parents[1] / "clients"


class Refused(Exception):
    """The server answered with this status and code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


class RealClient(Protocol):
    def call(self, method: str, *args: Any, credentials: Mapping[str, str] | None = None) -> Any:
        """What the client answers; raises Refused. Without credentials: those that it was made with."""

    def pages(self, method: str, task_id: str, **query: Any) -> list[Any]:
        """The answers of a method that lists, as long as there are more."""


class PyPI:
    """taskcluster 3.0.2."""

    def __init__(self, server: Server, credentials: Mapping[str, str] | None = None) -> None:
        self._server, self._credentials = server, credentials or server.credentials

    def call(self, method: str, *args: Any, credentials: Mapping[str, str] | None = None) -> Any:
        return self._call(credentials or self._credentials, method, *args)

    def pages(self, method: str, task_id: str, **query: Any) -> list[Any]:
        pages: list[Any] = []
        name = "taskGroupId" if method == "listTaskGroup" else "taskId"
        more = {
            "params": {name: task_id},
            "query": query,
            "paginationHandler": lambda page: pages.append(page),
        }
        self._call(self._credentials, method, **more)
        return pages

    def _call(self, credentials: Mapping[str, str], method: str, *args: Any, **more: Any) -> Any:
        # it encodes the values of the dictionary that it is given
        options = {"baseUrl": self._server.base_url, "credentials": dict(credentials)}
        queue = taskcluster.Queue(options)
        try:
            return getattr(queue, method)(*args, **more)
        except (
            taskcluster.exceptions.TaskclusterRestFailure,
            taskcluster.exceptions.TaskclusterAuthFailure,
        ) as failure:
            raise Refused(failure.status_code, failure.body["code"]) from None
        finally:
            queue.session.close()


class Npm:
    """taskcluster-client in a Node of its own."""

    def __init__(self, options: Mapping[str, Any], node: "subprocess.Popen[str]") -> None:
        self._options, self._node = options, node

    def call(self, method: str, *args: Any, credentials: Mapping[str, str] | None = None) -> Any:
        assert self._node.stdin
        assert self._node.stdout
        options = {**self._options, "credentials": dict(credentials or self._options["credentials"])}
        self._node.stdin.write(json.dumps({"options": options, "call": method, "args": args}) + "\n")
        self._node.stdin.flush()
        line = self._node.stdout.readline()  # ends with Node at the latest, and Node's own requests end
        assert line, f"the JavaScript client could not call {method}: see standard error"
        result = json.loads(line)
        if "refused" in result:
            raise Refused(result["refused"]["status"], result["refused"]["code"])
        return result.get("answer")

    def pages(self, method: str, task_id: str, **query: Any) -> list[Any]:
        pages = [self.call(method, task_id, query)]
        while token := pages[-1].get("continuationToken"):
            pages.append(self.call(method, task_id, {**query, "continuationToken": token}))
        return pages


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
