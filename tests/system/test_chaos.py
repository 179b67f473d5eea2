"""The short form of scripts/chaos; the long one takes minutes, and is for a person to start."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rabbitmq import RabbitMQ

from .processes import environment

SCRIPT = Path(__file__).parents[2] / "scripts" / "chaos.py"
SHORT = ("--seconds", "8", "--rate", "4", "--kills", "3", "--freezes", "1", "--stops", "0")
# what comes late is no failure here: a machine may be slow
PATIENT = ("--longest-freeze", "3", "--within", "240", "--patience", "240")


@pytest.mark.timeout(480)  # its own patience is less
def test_nothing_answered_is_lost_when_servers_are_killed_and_storage_freezes(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    with (tmp_path / "output").open("w") as output:
        found = subprocess.run(
            [sys.executable, str(SCRIPT), "--seed", "short", *SHORT, *PATIENT, "--amqp-url", rabbitmq.url],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(TMPDIR=str(tmp_path)),
            check=False,
        )
    said = (tmp_path / "output").read_text()
    assert found.returncode == 0, said
    assert said.count(" killed\n") == 3
    assert said.endswith("all is well\n")
