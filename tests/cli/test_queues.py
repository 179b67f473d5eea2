"""``legacy-queue queues``: its names are computed here by other code."""

import base64
import hashlib

from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from legacy_queue.domain.priority import PRIORITIES


def test_queues_prints_the_queue_of_each_priority_highest_first() -> None:
    pool = ("--provisioner", "my-provisioner", "--worker-type", "my-worker")
    printed = CliRunner().invoke(commands, ["queues", *pool, "--queue-prefix", "q2"])
    assert printed.exit_code == 0
    names = [
        base64.b32encode(hashlib.sha256(name.encode()).digest()[:15]).decode().lower()
        for name in ("my-provisioner", "my-worker")
    ]
    assert [line.split() for line in printed.output.splitlines()] == [
        [priority, f"q2-{names[0]}-{names[1]}-{7 - place}"] for place, priority in enumerate(PRIORITIES)
    ]
