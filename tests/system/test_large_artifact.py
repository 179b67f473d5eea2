"""A large artifact goes from a worker through the server into Azurite and back. Nobody keeps it in memory."""

import hashlib
import re
from pathlib import Path

import pytest
import requests

from .http_queue import Queue
from .processes import LONG, Server, processes_of, wait_until, work

pytestmark = pytest.mark.processes

MIB = 1024**2
MAKE = "import sys; piece = bytes(range(256)) * 4096; [sys.stdout.buffer.write(piece) for _ in range(128)]"


def peak(pid: int) -> int:
    """The peak memory of a process, in bytes."""
    [kilobytes] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024


@pytest.mark.parametrize("server", ["azurite"], indirect=True)
def test_for_an_artifact_of_128_mib_the_server_needs_less_than_64_mib_and_the_worker_less_than_128(
    queue: Queue, server: Server, tmp_path: Path
) -> None:
    command = ["sh", "-c", f"python3 -c '{MAKE}' > large"]
    artifacts = {"public/large": {"type": "file", "path": "large"}}
    task_id = queue.create(workerType="large", payload={"command": command, "artifacts": artifacts})
    before = {pid: peak(pid) for pid in processes_of(server.data_dir)}
    assert before
    with work(tmp_path, server, "large") as worker:
        wait_until(lambda: '"report"' in worker.errors)
        assert peak(worker.process.pid) < 128 * MIB
        assert worker.end() == 0
    assert max(peak(pid) - memory for pid, memory in before.items()) < 64 * MIB
    url = f"{server.base_url}/task/{task_id}/artifacts/public/large"
    with requests.get(url, stream=True, timeout=LONG) as answer:
        downloaded = hashlib.file_digest(answer.raw, "sha256").digest()
    assert downloaded == hashlib.sha256(bytes(range(256)) * 4096 * 128).digest()
