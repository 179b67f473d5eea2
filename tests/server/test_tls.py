"""TLS as the worker serves it: handshakes, ends, and the answer to a client without TLS."""

import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from legacy_queue.config import Settings, SettingsError
from legacy_queue.server.client_socket import ClientSocket
from legacy_queue.server.local_authority import LocalAuthority
from legacy_queue.server.tls import ServerTls
from tests.server.test_worker import (
    GET,
    LONG,
    SHORT,
    TLS,
    Served,
    Tls,
    answer,
    closing,
    contexts,
    serving,
)
from tests.system.processes import read_all, wait_until

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    TLS[0] = made = contexts(tmp_path_factory.mktemp("tls"))
    yield made
    TLS[0] = None


@pytest.fixture(scope="module")
def served(tls: Tls) -> Iterator[Served]:  # noqa: ARG001  started after it
    with serving() as server:
        yield server


def plain(served: Served, sent: bytes = b"") -> socket.socket:
    connection = served.stack.enter_context(socket.create_connection(served.address, LONG))
    connection.sendall(sent)
    return connection


def test_http_on_the_port_of_https_is_a_400_that_says_so(served: Served) -> None:
    said = read_all(plain(served, GET + b"\r\n"))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"this port speaks https" in said


@pytest.mark.parametrize("sent", [b"\x80" + b"\xff" * 600, b"\x16\x03\x01" + b"\xff" * 600, b""])
def test_a_connection_without_a_handshake_ends_and_others_are_served(served: Served, sent: bytes) -> None:
    connection = plain(served, sent)
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)
    assert answer(served.connect(GET + b"\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("tls")
def test_a_handshake_that_is_not_done_in_time_is_closed() -> None:
    with serving(handshake=SHORT) as served:
        assert read_all(plain(served, b"\x16\x03\x01\x02\x00")) == b""


@pytest.mark.usefixtures("tls")
def test_a_client_is_served_while_the_oldest_half_handshakes_are_closed() -> None:
    with serving(worker_connections=16) as served:  # 12, and 4 that are being replaced
        half = [plain(served, b"\x16\x03\x01\x02\x00\x01") for _ in range(200)]
        assert answer(served.connect(GET + b"\r\n")).startswith(b"HTTP/1.1 200")
        assert [read_all(connection) for connection in half[:180]] == [b""] * 180


def test_the_application_sees_https_and_an_answer_ends_with_close_notify(served: Served, tls: Tls) -> None:
    with tls.client.wrap_socket(
        plain(served), server_hostname="localhost", suppress_ragged_eofs=False
    ) as connection:
        connection.sendall(closing(GET))
        assert read_all(connection).startswith(b"HTTP/1.1 200")
    assert served.application.environs[-1]["wsgi.url_scheme"] == "https"


@pytest.mark.usefixtures("tls")
def test_a_connection_that_breaks_breaks_no_other() -> None:
    with serving() as served:
        served.application.answer = bytes(32 * 1024 * 1024)
        slow, broken = (served.connect(closing(GET)) for _ in range(2))
        wait_until(lambda: len(ClientSocket.unsent) == 2)
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        broken.close()
        wait_until(lambda: len(ClientSocket.unsent) == 1)
        assert len(read_all(slow)) > len(served.application.answer)


def configured(folder: Path) -> Settings:
    """Settings with a certificate of the operator."""
    LocalAuthority(folder / "own", ()).ensure(NOW)
    file = folder / "own/server.pem"
    return Settings(tls_cert=file, tls_key=file, data_dir=folder, storage="memory")


def opened(settings: Settings) -> ServerTls:
    return ServerTls(settings, lambda: NOW)


def shown(server: ServerTls) -> bytes:
    """The certificate that the server sends on a new connection."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asked = client.wrap_bio(to_client, to_server)
    answers = server.context.wrap_bio(to_server, to_client, server_side=True)
    for side in (asked, answers, asked):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return asked.getpeercert(binary_form=True) or b""


def test_a_certificate_is_renewed_while_the_server_serves(tmp_path: Path) -> None:
    now = [NOW]
    settings = Settings(tls="auto", data_dir=tmp_path)
    server = ServerTls(settings, lambda: now[0])
    before = shown(server)
    [begin] = now
    now.clear()
    server.refresh()
    assert shown(server) == before, "a defect neither replaces it nor ends what renews it"
    now.append(begin + timedelta(days=61))
    server.refresh()
    assert shown(server) != before


def test_a_configured_certificate_that_is_replaced_is_loaded(tmp_path: Path) -> None:
    server = opened(configured(tmp_path))
    before = shown(server)
    (tmp_path / "own/server.pem").unlink()
    server.refresh()
    assert shown(server) == before, "a missing file replaces nothing"
    (tmp_path / "own/server.pem").write_text("half of a file")
    server.refresh()
    assert shown(server) == before, "nor does a broken file"
    (tmp_path / "own/server.pem").unlink()
    configured(tmp_path)
    server.refresh()
    assert shown(server) != before


@pytest.mark.parametrize(
    "make",
    [
        lambda _: None,
        os.mkfifo,
        lambda path: path.write_text("no certificate"),
        lambda path: path.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"),
    ],
    ids=["missing", "a pipe", "text", "encrypted"],
)
def test_a_certificate_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    settings = configured(tmp_path)
    assert settings.tls_cert
    settings.tls_cert.unlink()
    make(settings.tls_cert)
    said = r"server\.pem cannot be used: .*(No such file|both are files|not encrypted$)"
    with pytest.raises(SettingsError, match=said):
        opened(settings)


def test_a_damaged_file_of_the_authority_is_refused_at_the_start(tmp_path: Path) -> None:
    settings = Settings(tls="auto", data_dir=tmp_path)
    opened(settings).authority.server.write_text("half of a file")  # type: ignore[union-attr]
    with pytest.raises(SettingsError, match=r"tls/server\.pem is damaged: remove it$"):
        opened(settings)


def test_a_public_url_that_the_certificate_does_not_name_is_refused(tmp_path: Path) -> None:
    settings = Settings(tls="auto", data_dir=tmp_path, public_url="https://queue.example.com")
    with pytest.raises(SettingsError, match=r"add --tls-name queue\.example\.com"):
        opened(settings)
    opened(replace(settings, tls_name=("queue.example.com",)))
    opened(settings)  # from now on the certificate has this name
    for url in ("https://localhost:8080", "https://[0:0::0:1]", "http://other.example.com", None):
        opened(replace(settings, public_url=url))
    with pytest.raises(SettingsError, match=r"add --tls-name 192\.0\.2\.1"):
        opened(replace(settings, public_url=None, host="192.0.2.1"))
