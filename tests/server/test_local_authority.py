"""The local certificate authority: what it creates, for which names it can sign, and when it is renewed."""

import ssl
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from legacy_queue.config import Settings
from legacy_queue.config.certificate_names import names_in
from legacy_queue.server.local_authority import ALWAYS, Issued, LocalAuthority, issue_server
from legacy_queue.server.tls import ServerTls
from tests.server.serving import LONG, Tls, serving

NOW = datetime.now(UTC).replace(microsecond=0)
NAME = "queue.taskcluster.net"
DAY = timedelta(days=1)
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


def make_authority(folder: Path, *names: str, now: datetime = NOW) -> LocalAuthority:
    authority = LocalAuthority(folder, names)
    authority.ensure(now)
    return authority


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_authority_is_valid_for_ten_years_and_the_server_certificate_for_90_days(tmp_path: Path) -> None:
    authority = make_authority(tmp_path / "tls", NAME)
    assert certificate(authority.certificate).not_valid_after_utc - NOW >= 3650 * DAY
    assert certificate(authority.server).not_valid_after_utc - NOW == 90 * DAY
    assert names_in(authority.server) == (*ALWAYS, NAME)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes == {0o600}, "every file is private"


def test_certificates_are_renewed_a_month_before_they_expire(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.pem")}
    make_authority(tmp_path, now=NOW + 59 * DAY)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    of_authority = authority.certificate.read_bytes()
    make_authority(tmp_path, now=NOW + 61 * DAY)
    assert certificate(authority.server).not_valid_after_utc == NOW + 151 * DAY
    assert authority.certificate.read_bytes() == of_authority
    make_authority(tmp_path, now=NOW + 3600 * DAY)
    assert authority.certificate.read_bytes() != of_authority, (
        "the authority is replaced, because it expires soon"
    )


def test_for_a_new_name_the_authority_is_replaced_by_one_for_all_names_and_the_log_says_so(
    tmp_path: Path,
) -> None:
    before = make_authority(tmp_path, NAME).certificate.read_bytes()
    with capture_logs() as logs:
        authority = make_authority(tmp_path, "other.example.com")
    assert authority.certificate.read_bytes() != before
    assert set(names_in(authority.server)) == {*ALWAYS, NAME, "other.example.com"}
    assert ("tls-authority-replaced", "warning") in [(line["event"], line["log_level"]) for line in logs]
    of_all = authority.certificate.read_bytes()
    assert make_authority(tmp_path, "10.9.8.7").certificate.read_bytes() == of_all, (
        "for a name that it already has, the authority stays"
    )
    assert "10.9.8.7" in names_in(authority.server)


def test_servers_that_start_at_the_same_time_create_one_authority(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads, capture_logs() as logs:
        list(threads.map(lambda _: make_authority(tmp_path), range(4)))
    assert [line["event"] for line in logs].count("tls-authority-made") == 1


def accepts(authority: LocalAuthority, file: Path, name: str) -> set[bool]:
    """Whether clients that trust only this authority accept a server with this certificate.

    The set has one value if all clients agree.
    """
    settings = Settings(tls_cert=file, tls_key=file, storage="memory")
    client = ssl.create_default_context(cafile=authority.certificate)
    with serving(Tls(ServerTls(settings).context, client)) as served:

        def by_node(program: str | Path) -> bool:
            words = [program, "-e", NODE, str(served.address[1]), name, authority.certificate]
            return subprocess.run(words, stdin=subprocess.DEVNULL, check=False, timeout=LONG).returncode == 0

        def by_python() -> bool:
            try:
                return bool(served.connect(name=name))
            except ssl.SSLCertVerificationError:
                return False

        return {by_python(), by_node("node"), by_node(NODE_6)}  # Node.js 6 has OpenSSL 1.0.2


@pytest.mark.processes
def test_clients_accept_the_names_of_the_authority_even_if_it_signed_other_names(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, NAME)
    other = "elsewhere.example.com"
    forged = tmp_path / "forged.pem"
    signer = Issued.read(tmp_path / "authority.pem")
    assert signer
    forged.write_text(issue_server(signer, [NAME, other], NOW).private_pem())
    assert accepts(authority, authority.server, NAME) == {True}
    assert accepts(authority, authority.server, "127.0.0.1") == {True}
    assert accepts(authority, authority.server, "127.0.0.2") == {False}
    assert accepts(authority, forged, other) == {False}
