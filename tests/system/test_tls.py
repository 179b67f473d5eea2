"""https with a local authority: clients that trust only this, and a worker with a built-in URL."""

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from legacy_queue.worker.http_client import Http, Unavailable
from tests.worker.conftest import FakeClock

from .http_queue import Queue, definition
from .processes import LONG, Server, serve, work
from .real_clients import CLIENTS, TODAY, real_client

NAME = "queue.taskcluster.net"
OPTIONS = ("--tls", "auto", "--tls-name", NAME, "--claim-work-wait", "5s")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("tls"), *OPTIONS) as server:
        yield server


def trust(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the clients and processes of a test trust the server's authority, and no other."""
    certificate = str(server.line["ca"]["certificate"])
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.setenv(name, certificate)
    return certificate


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, server: Server) -> str:
    return trust(server, monkeypatch)


@pytest.mark.usefixtures("trusted")
def test_a_worker_polls_claims_uploads_and_reports_over_https_only(server: Server, tmp_path: Path) -> None:
    queue = Queue(server)
    task_id = queue.create(definition("cycle", payload={"command": ["echo", "hello"]}))
    urls = queue.ask("GET", "/poll-task-url/system/cycle")["queues"]
    signed = [urlsplit(url) for pair in urls for url in pair.values()]
    assert {url.scheme for url in signed} == {"https"}
    assert {parse_qs(url.query)["spr"][0] for url in signed} == {"https"}
    with work(tmp_path, server, "cycle", "--max-tasks", "1") as worker:
        assert worker.wait() == 0
    assert worker.step_names[0] == "poll-urls"
    assert queue.runs(task_id) == [("completed", "completed")]
    log = requests.get(f"{server.base_url}/task/{task_id}/artifacts/public/logs/live.log", timeout=LONG)
    assert log.text == "hello\n"
    assert {urlsplit(answer.url).scheme for answer in [*log.history, log]} == {"https"}


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("name", [*CLIENTS[:2], TODAY[1]])
def test_real_clients_connect_over_https(server: Server, name: str) -> None:
    task = definition(f"of-{name}".replace(".", "-"))
    with real_client(name, server) as client:
        task_id = Queue(server).create(task)
        assert client.call("status", task_id)["status"]["state"] == "pending"
        assert client.call("ping")["alive"] is True


@pytest.mark.parametrize("client", ["requests", "node"])
def test_a_client_without_the_authority_refuses_the_server(
    server: Server, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.delenv(name, raising=False)
    if client == "requests":
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"{server.base_url}/ping", timeout=LONG)
        sample_worker = Http(FakeClock(), threading.Event())
        with pytest.raises(Unavailable, match="see legacy-queue ca"):
            sample_worker.send("ping", f"{server.base_url}/ping", "GET")
        sample_worker.close()
    else:
        fetched = f"fetch('{server.base_url}/ping').catch((error) => {{ console.log(error.cause.code) }})"
        output = subprocess.run(["node", "-e", fetched], capture_output=True, text=True, check=False).stdout
        assert "UNABLE_TO" in output


def curl(server: Server, name: str, path: str) -> "subprocess.CompletedProcess[str]":
    """GET the path with curl, which resolves the name to the server."""
    port = urlsplit(server.root_url).port
    words = ["--resolve", f"{name}:{port}:127.0.0.1", "--cacert", server.line["ca"]["certificate"]]
    return subprocess.run(
        ["curl", "-sS", *words, f"https://{name}:{port}{path}"], capture_output=True, text=True, check=False
    )


def test_curl_accepts_the_certificate_for_its_name_and_for_no_other(server: Server) -> None:
    assert json.loads(curl(server, NAME, "/v1/ping").stdout)["alive"] is True
    other = curl(server, "auth.taskcluster.net", "/v1/ping")
    assert other.returncode == 60, other.stderr  # another name than the certificate's


def test_openssl_verifies_tls_1_2_and_1_3(server: Server, trusted: str) -> None:
    address = urlsplit(server.root_url).netloc
    for version in ("-tls1_2", "-tls1_3"):
        words = [
            "openssl",
            "s_client",
            "-connect",
            address,
            version,
            "-CAfile",
            trusted,
            "-verify_return_error",
        ]
        ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert "Verify return code: 0 (ok)" in ended.stdout


@contextmanager
def connect_proxy(target: tuple[str, int]) -> Iterator[tuple[str, list[str]]]:
    """The URL of an HTTP proxy, and the authorities of its requests. It connects NAME:443 to the target."""
    requested: list[str] = []

    def pipe(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve_client(client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(1)
        authority = head.split()[1].decode()
        requested.append(authority)
        host, _, port = authority.rpartition(":")
        with client, socket.create_connection(target if host == NAME else (host, int(port))) as there:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pipe, args=(there, client))
            back.start()
            pipe(client, there)
            back.join(LONG)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve_client, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", requested
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LONG)


def test_a_worker_with_a_built_in_url_runs_a_task_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--storage", "memory", "--tls", "auto", "--tls-name", NAME, "--public-url", f"https://{NAME}")
    with serve(tmp_path / "server", *options) as server:
        assert server.base_url == f"https://{NAME}/v1"
        with connect_proxy(("127.0.0.1", server.line["port"])) as (proxy, requested):
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", server.line["ca"]["certificate"])
            queue = Queue(server)
            task_id = queue.create(definition("far", payload={"command": ["echo", "hello"]}))
            with work(tmp_path / "worker", server, "far", "--max-tasks", "1") as worker:
                assert worker.wait() == 0
            assert queue.runs(task_id) == [("completed", "completed")]
        assert f"{NAME}:443" in requested
