"""``legacy-queue serve`` as a process: how it starts, stops and recovers, and its errors."""

import os
import re
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from legacy_queue.domain.ids import slugid
from tests.http.calls import succeeded

from .http_queue import Queue
from .processes import LONG, Server, has_ended, processes_of, read_all, run, serve, wait_until

pytestmark = pytest.mark.processes

MIB = 1024 * 1024
# runs the program in its arguments, and prints a line on standard error for each garbage collection
SHOW_COLLECTIONS = """
import gc, runpy, sys
gc.set_debug(gc.DEBUG_STATS)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


# Uploads that could delay other requests


@pytest.mark.parametrize("server", ["memory"], indirect=True)
def test_other_requests_are_answered_while_a_large_body_arrives_without_a_pause(
    server: Server, worker_type: str
) -> None:
    begun, answered = threading.Event(), threading.Event()
    with server.connect() as connection:
        queue = Queue(server)
        task_id = queue.running(workerType=worker_type)
        url = urlsplit(succeeded(queue.artifact(task_id, "public/a")).get_json()["putUrl"])
        head = f"PUT {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: text/plain\r\n"

        def send() -> None:
            connection.sendall(f"{head}Content-Length: {4096 * MIB}\r\n\r\n".encode())
            for sent in range(512):
                connection.sendall(bytes(MIB))
                if sent == 32:
                    begun.set()
                if answered.is_set():
                    return
            raise AssertionError("the answer came after the whole body")

        with ThreadPoolExecutor() as threads:
            sending = threads.submit(send)
            assert begun.wait(LONG)
            assert requests.get(f"{server.base_url}/ping", timeout=LONG).status_code == 200
            answered.set()
            sending.result()


def test_the_server_uses_tcp_keepalive_to_find_clients_that_have_vanished(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536)
        ports = [f":{address[1]:04X}" for address in (connection.getpeername(), connection.getsockname())]
        [timer] = [
            fields[5]
            for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines())
            if [fields[1][-5:], fields[2][-5:]] == ports
        ]
        kind, _, left = timer.partition(":")  # see proc_net_tcp in the kernel's documentation
        assert kind == "02"  # the kernel's timer for keepalive
        assert int(left, 16) <= 60 * os.sysconf("SC_CLK_TCK")


def test_the_garbage_collector_of_a_server_skips_what_was_imported(tmp_path: Path) -> None:
    under = (sys.executable, "-c", SHOW_COLLECTIONS)
    with serve(tmp_path, "--storage", "memory", under=under) as server:

        def collects() -> bool:
            requests.get(f"{server.base_url}/ping", timeout=LONG)
            return bool(re.search("objects in permanent generation: [1-9]", server.errors))

        assert wait_until(collects)


# How a server stops


def test_no_process_of_a_server_blocks_the_signals_that_stop_it(server: Server) -> None:
    """A server process inherits its parent's signal mask. While it forks, the parent blocks these signals."""
    for pid in processes_of(server.data_dir):
        status = Path(f"/proc/{pid}/status").read_text()
        blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
        ends = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
        assert not any(blocked >> (number - 1) & 1 for number in ends)


def test_if_its_azurite_dies_a_server_ends_with_an_error(tmp_path: Path) -> None:
    with serve(tmp_path, "--storage", "azurite") as server:
        queue = Queue(server)
        server.send(signal.SIGSTOP)  # stopped, so that the parent cannot notice before this test does
        [dead] = processes_of(server.data_dir / "azurite")
        os.kill(dead, signal.SIGKILL)
        wait_until(lambda: has_ended(dead))
        assert server.ready() == 503
        unavailable = queue.call("createTask", queue.task_body(), taskId=slugid())
        assert (unavailable.status_code, "Retry-After" in unavailable.headers) == (503, True)
        server.send(signal.SIGCONT)
        assert server.wait() == 1
    assert server.errors.count("azurite-ended") == 1
    assert "azurite-not-saved" not in server.errors


def test_if_its_azurite_cannot_save_a_server_is_not_ready_and_ends_with_an_error(tmp_path: Path) -> None:
    with serve(tmp_path, "--storage", "azurite") as server:
        unwritable = server.data_dir / "azurite/__azurite_db_table__.json~"
        # as if the disk were full. During a save, this is a file, so repeat
        wait_until(lambda: is_made(unwritable))
        Queue(server).create()
        wait_until(lambda: server.ready() == 503)
        assert server.end() == 1
        assert "azurite-not-saved" in server.errors


def is_made(folder: Path) -> bool:
    with suppress(FileExistsError):
        folder.mkdir()
        return True
    return False


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--storage azurite --azurite-dir nowhere", "There is no .*nowhere/node_modules"),
        ("--storage azure --connection-string no=string --control", "connection string cannot be used"),
    ],
)
def test_without_its_storage_a_server_refuses_to_start_with_one_sentence_and_writes_nothing(
    tmp_path: Path, options: str, reason: str
) -> None:
    with run(tmp_path, "serve", *options.split(), "--port=0", "--data-dir=data") as refused:
        assert refused.wait() in (1, 2)
    assert refused.output == ""
    assert re.fullmatch(f"Error: .*{reason}.*\n", refused.errors)
    assert not (tmp_path / "data").exists()


def test_a_server_works_even_if_it_cannot_write_server_json(tmp_path: Path) -> None:
    """``serve`` in this test waits for the ready line."""
    (tmp_path / "data" / "server.json").mkdir(parents=True)
    with serve(tmp_path, "--storage", "memory") as server:
        assert server.ready() == 200
        assert "server-file-not-written" in server.errors
        assert server.end() == 0


# Secrets in the log


def test_the_log_has_no_secret_from_a_request_that_is_not_valid_http(
    server: Server, worker_type: str
) -> None:
    """tests/http shows this for HTTP requests, and ``serve`` asserts it for every server of these tests."""
    urls = Queue(server).poll_urls(workerType=worker_type)[-1]
    secret = "a-secret-in-a-request-that-no-log-may-hold"
    server.secrets.add(secret)
    signed = urlsplit(urls["signedPollUrl"])
    for head in (
        f"GET {signed.path}?{signed.query}&sig= {secret} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        f"GET {signed.path}?{signed.query} HTTP/9.9\r\nHost: localhost\r\n\r\n",
        f"get {signed.path}?{signed.query} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        f"GET {signed.path}?{signed.query}\r\n\r\n",
        f'GET /v1/ping HTTP/1.1\r\nHost: localhost\r\nAuthorization : Hawk id="x", mac="{secret}"\r\n\r\n',
        f'GET /v1/ping HTTP/1.1\r\nHost: localhost\r\nAuthorization: Hawk id="x",\r\n mac="{secret}"\r\n\r\n',
        f'GET /v1/ping HTTP/1.1\r\nHost: localhost\r\nHawk id="x", mac="{secret}"\r\n\r\n',
        f"GET /v1/ping?bewit={secret * 400} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        f"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\nAuthorization: Hawk {secret * 3000}\r\n\r\n",
    ):
        with server.connect() as connection:
            connection.sendall(head.encode())
            connection.shutdown(socket.SHUT_WR)
            try:
                answer = read_all(connection)
            except ConnectionResetError:
                answer = b""
            assert b" 500 " not in answer
    assert server.leaks() == []
