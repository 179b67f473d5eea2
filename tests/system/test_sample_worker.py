"""The sample worker as a process. ``conform`` judges it in each protocol."""

import signal
from pathlib import Path

import pytest

from legacy_queue.testing import LegacyQueue

from .processes import LONG, client_env, run, wait_until

pytestmark = pytest.mark.processes


def test_a_second_signal_ends_the_worker_at_once(legacy_queue: LegacyQueue, tmp_path: Path) -> None:
    up = tmp_path / "up"
    legacy_queue.create_task(worker_type="w", payload={"command": f"touch {up}; sleep {2 * LONG}"})
    slow = legacy_queue.fault("reportException", delay=2 * LONG)
    env = client_env(legacy_queue.root_url, legacy_queue.credentials)
    with run(tmp_path, "worker", "test-provisioner/w", env=env) as worker:
        wait_until(up.exists)
        worker.send(signal.SIGTERM)
        wait_until(lambda: slow.fired)
        assert worker.end() == 128 + signal.SIGTERM
