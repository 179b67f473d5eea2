"""The local authority: what it makes, for which names it can sign, and when it is renewed."""

import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from legacy_queue.config.certificate_names import names_in
from legacy_queue.server.local_authority import ALWAYS, Issued, LocalAuthority, issue_server

NOW = datetime.now(UTC).replace(microsecond=0)
NAME = "queue.taskcluster.net"
DAY = timedelta(days=1)
LONG = 60.0
NODE_6 = Path(__file__).parents[1] / "clients/node_modules/node-6/bin/node"
NODE = """
const [port, name, ca] = process.argv.slice(1);
const servername = require("net").isIP(name) ? "" : name;
const socket = require("tls").connect({
  port: +port, host: "127.0.0.1", servername, ca: require("fs").readFileSync(ca),
  checkServerIdentity: (_, cert) => require("tls").checkServerIdentity(name, cert),
});
socket.on("secureConnect", () => { console.log("verified"); process.exit(0); });
socket.on("error", (error) => { console.log(error.code); process.exit(1); });
"""


def made(folder: Path, *names: str, now: datetime = NOW) -> LocalAuthority:
    authority = LocalAuthority(folder, names)
    authority.ensure(now)
    return authority


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_authority_lives_ten_years_and_the_server_certificate_ninety_days(tmp_path: Path) -> None:
    authority = made(tmp_path, NAME)
    assert certificate(authority.certificate).not_valid_after_utc - NOW >= 3650 * DAY
    assert certificate(authority.server).not_valid_after_utc - NOW == 90 * DAY
    assert names_in(authority.server) == (*ALWAYS, NAME)


def test_every_file_of_the_authority_is_private(tmp_path: Path) -> None:
    made(tmp_path / "tls")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700


def test_nothing_is_written_again_until_a_month_before_the_end(tmp_path: Path) -> None:
    authority = made(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pem")}
    made(tmp_path, now=NOW + 59 * DAY)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    of_authority = authority.certificate.read_bytes()
    made(tmp_path, now=NOW + 61 * DAY)
    assert certificate(authority.server).not_valid_after_utc == NOW + 151 * DAY
    assert authority.certificate.read_bytes() == of_authority
    made(tmp_path, now=NOW + 3600 * DAY)
    assert authority.certificate.read_bytes() != of_authority, "it ends soon"


def test_a_new_name_replaces_the_authority_by_one_for_all_names_and_is_logged(tmp_path: Path) -> None:
    before = made(tmp_path, NAME).certificate.read_bytes()
    with capture_logs() as logs:
        authority = made(tmp_path, "other.example.com")
    assert authority.certificate.read_bytes() != before
    assert set(names_in(authority.server)) == {*ALWAYS, NAME, "other.example.com"}
    assert ("tls-authority-replaced", "warning") in [(line["event"], line["log_level"]) for line in logs]
    of_all = authority.certificate.read_bytes()
    assert made(tmp_path, "10.9.8.7").certificate.read_bytes() == of_all, "no name is new to it"
    assert "10.9.8.7" in names_in(authority.server)


@pytest.mark.processes
def test_processes_that_start_at_once_make_one_authority(tmp_path: Path) -> None:
    code = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path\n"
        "from legacy_queue.server.local_authority import LocalAuthority\n"
        "authority = LocalAuthority(Path(sys.argv[1])); sys.stdin.readline()\n"
        "authority.ensure(datetime.now(UTC))\n"
    )
    gate, opened = os.pipe()
    started = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], stdin=gate, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    os.close(gate)
    os.close(opened)
    outputs = [process.communicate()[0].decode() for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert sum(output.count("tls-authority-made") for output in outputs) == 1


@contextmanager
def answering(path: Path) -> Iterator[int]:
    """The port of a TLS server that has the certificate in this file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # until the listener is shut down
                while True:
                    connection, _ = listener.accept()
                    # a client that has left is an SSLError or, in newer Pythons, another OSError
                    with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
                        secured.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(LONG)


def verdicts(authority: LocalAuthority, port: int, name: str) -> dict[str, bool]:
    """Whether each client, which trusts this authority alone, accepts the server as that name."""

    def run(*words: str | Path) -> bool:
        return subprocess.run(words, stdin=subprocess.DEVNULL, check=False, timeout=LONG).returncode == 0

    def python() -> bool:
        context = ssl.create_default_context(cafile=authority.certificate)
        try:
            with (
                socket.create_connection(("127.0.0.1", port), LONG) as plain,
                context.wrap_socket(plain, server_hostname=name),
            ):
                return True
        except ssl.SSLCertVerificationError:
            return False

    answers = {
        "node": lambda: run("node", "-e", NODE, str(port), name, authority.certificate),
        "OpenSSL 1.0.2": lambda: run(NODE_6, "-e", NODE, str(port), name, authority.certificate),
        "python": python,
    }
    with ThreadPoolExecutor() as pool:
        return dict(zip(answers, pool.map(lambda ask: ask(), answers.values()), strict=True))


@pytest.mark.processes
def test_clients_of_the_authority_accept_its_names_and_no_other_that_it_has_signed(tmp_path: Path) -> None:
    authority = made(tmp_path, NAME)
    other = "elsewhere.example.com"
    forged = tmp_path / "forged.pem"
    signer = Issued.read(tmp_path / "authority.pem")
    assert signer
    forged.write_text(issue_server(signer, [NAME, other], NOW).private_pem())
    for file, name, is_accepted in (
        (authority.server, NAME, True),
        (authority.server, "127.0.0.1", True),
        (authority.server, "127.0.0.2", False),
        (forged, other, False),
    ):
        with answering(file) as port:
            assert set(verdicts(authority, port, name).values()) == {is_accepted}, name
