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

_CLIENTS = Path(__file__).parents[1] / "clients"


class Refused(Exception):
    """The server answered with this status and code."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


class RealClient(Protocol):
    def call(self, method: str, *args: Any, credentials: Mapping[str, str] | None = None) -> Any:
        """What the client answers; raises Refused. Without credentials: those of the development client."""


class PyPI:
    """taskcluster 3.0.2."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def call(self, method: str, *args: Any, credentials: Mapping[str, str] | None = None) -> Any:
        # it encodes the values of the dictionary that it is given
        options = {
            "baseUrl": self._server.base_url,
            "credentials": dict(credentials or self._server.credentials),
        }
        queue = taskcluster.Queue(options)
        try:
            return getattr(queue, method)(*args)
        except (
            taskcluster.exceptions.TaskclusterRestFailure,
            taskcluster.exceptions.TaskclusterAuthFailure,
        ) as failure:
            raise Refused(failure.status_code, failure.body["code"]) from None
        finally:
            queue.session.close()


class Npm:
    """taskcluster-client in a Node of its own."""

    def __init__(self, server: Server, where: dict[str, str], node: "subprocess.Popen[str]") -> None:
        self._server, self._where, self._node = server, where, node

    def call(self, method: str, *args: Any, credentials: Mapping[str, str] | None = None) -> Any:
        assert self._node.stdin
        assert self._node.stdout
        options = {**self._where, "credentials": dict(credentials or self._server.credentials)}
        self._node.stdin.write(json.dumps({"options": options, "call": method, "args": args}) + "\n")
        self._node.stdin.flush()
        line = self._node.stdout.readline()  # ends with Node at the latest, and Node's own requests end
        assert line, f"the JavaScript client could not call {method}: see standard error"
        result = json.loads(line)
        if "refused" in result:
            raise Refused(result["refused"]["status"], result["refused"]["code"])
        return result.get("answer")


@contextmanager
def npm(server: Server, version: str) -> Iterator[Npm]:
    """Version 4 takes the base URL, version 11 the root URL."""
    if not (_CLIENTS / "node_modules").is_dir():
        pytest.fail(f"{_CLIENTS}/node_modules is missing: scripts/test makes it, and so does `npm ci` there.")
    try:
        node = find_node(os.environ.get("LEGACY_QUEUE_NODE"))
    except NodeUnavailable as error:
        pytest.fail(f"The JavaScript clients cannot run. {error}")
    where = {"baseUrl": server.base_url} if version == "4" else {"rootUrl": server.root_url}
    with subprocess.Popen(
        [node, _CLIENTS / "call.js", version], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Npm(server, where, process)
        finally:
            process.kill()
            process.wait(LONG)
