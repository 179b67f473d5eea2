"""What a page in a browser reads from the ports that ``up`` opens: nothing."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from legacy_queue.local_processes.azurite import ACCOUNT
from tests.cli.test_up import WITH_RABBITMQ, create_task, root_url_in, up
from tests.system.processes import LONG

pytestmark = pytest.mark.processes

FOREIGN = "queue.evil.example"
PATHS = ("/events?follow=false", "/v1/ping", "/metrics", "/control/v1/requests", f"/{ACCOUNT}?comp=list")


def descendants(pid: int) -> Iterator[int]:
    """The process and all that it has started."""
    yield pid
    for line in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from descendants(int(line))


def listening(pid: int) -> set[int]:
    """The TCP ports that the process or its descendants listen on."""
    inodes = set()
    for each in descendants(pid):
        for descriptor in Path(f"/proc/{each}/fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(descriptor))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in inodes:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports


def answered(port: int, head: str) -> bytes:
    """All that the port sends for this request until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), LONG) as connection, suppress(ConnectionResetError):
        connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
        while data := connection.recv(65536):
            received += data
    return received


def test_a_page_of_a_foreign_host_or_origin_reads_nothing_from_any_port(tmp_path: Path) -> None:
    options = ("--azurite", "--azurite-default-account", "--data-dir", str(tmp_path))
    with up(*options, program=WITH_RABBITMQ) as (process, text):
        ports = listening(process.pid)
        assert len(ports) == 5, "the server, the three of Azurite, RabbitMQ"
        assert int(root_url_in(text).rpartition(":")[2]) in ports
        paths = (*PATHS, f"/v1/task/{create_task(text)}")
        for port in ports:
            for path in paths:
                answer = answered(port, f"GET {path} HTTP/1.1\r\nHost: {FOREIGN}:{port}")
                assert answer.startswith((b"HTTP/1.1 4", b"AMQP")), (port, path, answer)
            for method in ("GET", "OPTIONS"):
                origin = f"Origin: http://{FOREIGN}\r\nAccess-Control-Request-Method: GET"
                head = f"{method} /v1/ping HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}"
                assert b"access-control-" not in answered(port, head).lower()
