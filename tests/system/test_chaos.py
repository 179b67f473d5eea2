"""The short form of scripts/chaos; a person starts the long form, which takes minutes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rabbitmq import RabbitMQ

from .processes import environment

SCRIPT = Path(__file__).parents[2] / "scripts" / "chaos.py"
SHORT = ("--seconds", "8", "--rate", "4", "--kills", "3", "--freezes", "1", "--stops", "0")
# long timeouts: a machine may be slow
TIMEOUTS = ("--longest-freeze", "3", "--within", "240", "--recovery-timeout", "240")


@pytest.mark.timeout(480)  # longer than the script's own timeouts
def test_no_answered_task_is_lost_when_servers_are_killed_and_storage_freezes(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    with (tmp_path / "output").open("w") as output:
        ended = subprocess.run(
            [sys.executable, str(SCRIPT), "--seed", "short", *SHORT, *TIMEOUTS, "--amqp-url", rabbitmq.url],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(TMPDIR=str(tmp_path)),
            check=False,
        )
    output_text = (tmp_path / "output").read_text()
    assert ended.returncode == 0, output_text
    assert output_text.count(" killed\n") == 3
    assert output_text.endswith("all is well\n")
