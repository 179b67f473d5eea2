"""TLS in our gunicorn worker: handshakes, closed connections, and clients without TLS."""

import os
import ssl
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
from tests.server.serving import GET, SHORT, Served, Tls, answer, closing, reset, serving
from tests.system.processes import read_all, wait_until

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def served(tls: Tls) -> Iterator[Served]:
    with serving(tls) as server:
        yield server


def test_a_plain_http_request_to_the_https_port_gets_a_400_that_says_so(served: Served) -> None:
    said = read_all(served.plain(GET + b"\r\n"))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"this port speaks https" in said


def test_a_connection_whose_handshake_takes_too_long_is_closed(tls: Tls) -> None:
    with serving(tls, request=SHORT) as served:
        assert read_all(served.plain(b"\x16\x03\x01\x02\x00")) == b""


def test_if_too_many_handshakes_are_unfinished_the_oldest_are_closed_and_a_new_client_is_served(
    tls: Tls,
) -> None:
    with serving(tls, worker_connections=16) as served:  # 12 connections, and 4 that are being replaced
        half = [served.plain(b"\x16\x03\x01\x02\x00\x01") for _ in range(50)]
        assert answer(served.connect(GET + b"\r\n")).startswith(b"HTTP/1.1 200")
        assert [read_all(connection) for connection in half[:30]] == [b""] * 30


def test_the_application_gets_https_as_scheme_and_an_answer_ends_with_close_notify(
    served: Served, tls: Tls
) -> None:
    with tls.client.wrap_socket(
        served.plain(), server_hostname="localhost", suppress_ragged_eofs=False
    ) as connection:
        connection.sendall(closing(GET))
        assert read_all(connection).startswith(b"HTTP/1.1 200")
    assert served.application.environs[-1]["wsgi.url_scheme"] == "https"


def test_a_broken_connection_does_not_affect_others(tls: Tls) -> None:
    with serving(tls) as served:
        served.application.answer = bytes(32 * 1024 * 1024)
        slow, broken = (served.connect(closing(GET)) for _ in range(2))
        wait_until(lambda: len(ClientSocket.unsent) == 2)
        reset(broken)
        wait_until(lambda: len(ClientSocket.unsent) == 1)
        assert len(read_all(slow)) > len(served.application.answer)


def configured(folder: Path) -> Settings:
    """Settings with the operator's own certificate."""
    LocalAuthority(folder / "own", ()).ensure(NOW)
    file = folder / "own/server.pem"
    return Settings(tls_cert=file, tls_key=file, storage="memory")


def shown(server: ServerTls) -> bytes:
    """The certificate that the server shows to a new connection."""
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
    server = ServerTls(Settings(tls="auto", data_dir=tmp_path), lambda: now.pop())
    before = shown(server)
    server.refresh()
    assert shown(server) == before, "after a defect, the certificate stays and is still renewed later"
    now.append(NOW + timedelta(days=61))
    server.refresh()
    assert shown(server) != before


def test_a_configured_certificate_is_loaded_again_when_its_file_is_replaced(tmp_path: Path) -> None:
    server = ServerTls(configured(tmp_path))
    before = shown(server)
    file = tmp_path / "own/server.pem"
    for spoil in (file.unlink, lambda: file.write_text("half of a file")):
        spoil()
        server.refresh()
        assert shown(server) == before, "a missing or broken file does not replace the certificate"
    file.unlink()
    configured(tmp_path)
    server.refresh()
    assert shown(server) != before


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "No such file"),
        (os.mkfifo, "expected two files"),
        (lambda path: path.write_text("no certificate"), "PEM, and the key is not encrypted"),
        (lambda path: path.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\n"), "not encrypted"),
    ],
)
def test_an_unusable_certificate_is_refused_at_the_start(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    settings = configured(tmp_path)
    file = tmp_path / "own/server.pem"
    file.unlink()
    make(file)
    with pytest.raises(SettingsError, match=rf"server\.pem cannot be used: .*{said}"):
        ServerTls(settings)


def test_a_damaged_authority_file_is_refused_at_the_start(tmp_path: Path) -> None:
    settings = Settings(tls="auto", data_dir=tmp_path)
    ServerTls(settings)
    (tmp_path / "tls/server.pem").write_text("half of a file")
    with pytest.raises(SettingsError, match=r"tls/server\.pem is damaged: remove it$"):
        ServerTls(settings)


def test_a_public_url_whose_host_is_not_in_the_certificate_is_refused(tmp_path: Path) -> None:
    settings = Settings(tls="auto", data_dir=tmp_path, public_url="https://queue.example.com")
    with pytest.raises(SettingsError, match=r"add --tls-name queue\.example\.com"):
        ServerTls(settings)
    ServerTls(replace(settings, tls_name=("queue.example.com",)))
    ServerTls(settings)  # accepted, because now the certificate has this name
    for url in ("https://localhost:8080", "https://[0:0::0:1]", "http://other.example.com", None):
        ServerTls(replace(settings, public_url=url))
    with pytest.raises(SettingsError, match=r"add --tls-name 192\.0\.2\.1"):
        ServerTls(replace(settings, public_url=None, host="192.0.2.1"))
