"""Servers on embedded storage: kills, full disks, and several processes on one file."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from legacy_queue.domain.ids import slugid

from .http_queue import Queue
from .processes import COMMAND, environment, processes_of, serve, wait_until

pytestmark = pytest.mark.processes

MIB = 1024 * 1024


def create(queue: Queue, acknowledged: list[str], **body: Any) -> int:
    """Create a task, and add it to ``acknowledged`` if the answer is 200.

    Returns the status, or 0 if there was no answer.
    """
    task_id = slugid()
    with suppress(requests.RequestException):
        answer = queue.call("createTask", queue.task_body(**body), taskId=task_id)
        assert answer.status_code in (200, 503), answer.text
        acknowledged.extend([task_id] if answer.status_code == 200 else [])
        return answer.status_code
    return 0


def test_kills_of_the_server_under_load_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged = list[str]()
    for _ in range(3):
        with serve(tmp_path, "--workers", "2") as server, ThreadPoolExecutor(4) as threads:
            queue = Queue(server)
            assert {queue.state(task_id) for task_id in acknowledged} <= {"pending"}
            until_killed = [iter(partial(create, queue, acknowledged), 0) for _ in range(4)]
            loads = [threads.submit(list, creates) for creates in until_killed]
            for _ in range(10):
                create(queue, acknowledged)
            # all processes at the same time, like a power failure
            os.killpg(server.process.pid, signal.SIGKILL)
            server.wait()
            assert sum(len(load.result()) for load in loads) > 0


def small_disk(folder: Path, size: int) -> tuple[str, ...]:
    """A command under which the folder is a disk of ``size`` bytes. It does not need root."""
    folder.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={size},mode=0700 none "$1" && shift && exec "$@"'
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(folder))


def test_on_a_full_disk_calls_are_refused_nothing_is_lost_and_no_restart_is_needed_afterwards(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    with serve(tmp_path, data_dir=disk / "data", under=small_disk(disk, 12 * MIB)) as server:
        seen = Path(f"/proc/{server.process.pid}/root{disk}")  # only the server sees the mounted disk
        queue, acknowledged = Queue(server), list[str]()
        creates = partial(create, queue, acknowledged, payload={"x": "x" * 9_000})
        creates()
        fill(seen / "ballast")
        wait_until(lambda: creates() == 503)
        wait_until(lambda: server.ready() == 503)
        wait_until(lambda: "storage-space-low" in server.errors)
        refused = queue.call("createTask", queue.task_body(), taskId=slugid())
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        for task_id in acknowledged:
            assert queue.state(task_id) == "pending"
        os.kill(max(processes_of(server.data_dir)), signal.SIGKILL)
        fill(seen / "ballast")
        assert queue.state(acknowledged[0]) == "pending", "the next process serves reads"
        assert (creates(), server.ready()) == (503, 503)
        with (seen / "ballast").open("r+b") as ballast:
            ballast.truncate(ballast.seek(0, os.SEEK_END) - 2 * MIB)
        wait_until(lambda: server.ready() == 200)
        wait_until(lambda: creates() == 200)
        for task_id in acknowledged:
            assert queue.state(task_id) == "pending"
        fill(seen / "ballast")
        wait_until(lambda: creates() == 503)
        code = server.end()
        # the last checkpoint may have made enough room for everything that was left to write
        assert code == ("its disk is full" in server.errors)


def fill(path: Path) -> None:
    """Append to the file until its disk is full."""
    for size in (64 * 1024, 1024):
        with suppress(OSError), path.open("ab", buffering=0) as file:
            while True:
                file.write(b"." * size)


def test_if_the_disk_is_full_at_a_start_the_error_does_not_speak_of_damage(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    mount = small_disk(disk, 2 * MIB)
    script = (
        '"$0" serve --port 0 --data-dir data --stop-with-stdin < /dev/null > /dev/null 2>&1;'
        'cat /dev/zero > ballast; "$0" serve --port 0 --data-dir data; '
        'rm -rf data/*; cat /dev/zero >> ballast; "$0" serve --port 0 --data-dir data'
    )
    command = [*mount, "sh", "-c", f"cd {disk}; {script}", str(COMMAND)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment())
    sentences = [line for line in ended.stderr.splitlines() if line.startswith("Error: /")]
    assert len(sentences) == 2, ended.stderr
    assert "damaged" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_if_the_shared_memory_file_is_removed_and_a_process_dies_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    """Otherwise the next process would use other shared memory and overwrite the changes of the others."""
    with serve(tmp_path, "--workers", "2") as server:
        queue, acknowledged = Queue(server), list[str]()
        for _ in range(10):
            create(queue, acknowledged)
        (server.data_dir / "storage.sqlite-shm").unlink()
        os.kill(max(processes_of(server.data_dir)), signal.SIGKILL)
        for _ in range(50):
            create(queue, acknowledged)
        wait_until(lambda: server.ready() == 503)
        wait_until(lambda: create(queue, acknowledged) == 503)
        assert "storage-file-removed" in server.errors
        assert "events-of-each-process" in server.errors, (
            "the log warns that each process has events of its own"
        )
        server.end()
    with serve(tmp_path) as server:
        for task_id in acknowledged:
            assert Queue(server).state(task_id) == "pending"
    assert len(acknowledged) >= 10
