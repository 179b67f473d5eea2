"""``legacy-queue ca``: the path of the authority, and the variables of clients."""

import re
import subprocess
import sys
from pathlib import Path

from legacy_queue.config.certificate_names import names_in


def ca(*words: str) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: it sets up the logging of its process."""
    command = [sys.executable, "-m", "legacy_queue", "ca", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_ca_makes_an_authority_once_and_prints_its_path(tmp_path: Path) -> None:
    words = ("--data-dir", str(tmp_path / "data"), "--tls-name", "a.example.com", "--tls-name", "10.0.0.1")
    path = tmp_path / "data/tls/ca.pem"
    assert ca(*words).stdout.startswith(f"{path}\n\n")
    made = path.read_bytes()
    assert names_in(path.with_name("server.pem"))[3:] == ("a.example.com", "10.0.0.1")
    said = ca("--data-dir", str(tmp_path / "data")).stdout
    assert path.read_bytes() == made
    variables = re.findall(r"(NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|SSL_CERT_FILE)=(\S+)", said)
    assert {name: Path(value).name for name, value in variables} == {
        "NODE_EXTRA_CA_CERTS": "ca.pem",
        "REQUESTS_CA_BUNDLE": "bundle.pem",
        "SSL_CERT_FILE": "bundle.pem",
    }
    assert all(Path(value).is_file() for _, value in variables)
    assert "update-ca-certificates" in said
