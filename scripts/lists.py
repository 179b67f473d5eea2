"""Memory of a real server while large tasks are listed, by several clients at once; run by scripts/lists.

Each listing goes through all pages of one group. The server on Azurite is started anew between creating the
tasks and listing them; with memory storage it has them in its own memory before the listings begin.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from subprocess import PIPE, Popen
from sys import executable
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from legacy_queue.domain.hawk import sign_header
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time

_SAMPLE_EVERY = 0.005  # seconds
_OBJECT = {"a": [1, 2]}


class Client:
    """One kept-alive connection."""

    def __init__(self, line: dict[str, Any]) -> None:
        self._credentials = line["credentials"]
        url = urlsplit(line["baseUrl"])
        self._host, self._port, self._path = url.hostname or "", url.port or 80, url.path
        self._connection = HTTPConnection(self._host, self._port, timeout=120)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer, which must be 200."""
        target = self._path + path
        authorization = sign_header(
            client_id=self._credentials["clientId"],
            access_token=self._credentials["accessToken"],
            method=method,
            target=target,
            host=self._host,
            port=self._port,
            now=datetime.now(UTC),
            nonce=slugid(),
        )
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        self._connection.request(method, target, json.dumps(body) if body else None, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
        return json.loads(text)


def definition(task_group_id: str, payload: Any) -> dict[str, Any]:
    """What createTask is given."""
    now = datetime.now(UTC)
    return {
        "provisionerId": "lists",
        "workerType": "lists",
        "taskGroupId": task_group_id,
        "created": format_time(now),
        "deadline": format_time(now + timedelta(hours=1)),
        "payload": {"large": payload},
        "metadata": {
            "name": "n",
            "description": "d",
            "owner": "o@example.com",
            "source": "http://example.com",
        },
    }


def resident(pid: int) -> float:
    """MB that the process has now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def peak(pid: int) -> Iterator[list[float]]:
    """The highest and the last of what the process has meanwhile, in MB: looked at every 5 ms."""
    found, stop = [resident(pid)] * 2, Event()

    def look() -> None:
        while not stop.wait(_SAMPLE_EVERY):
            found[1] = resident(pid)
            found[0] = max(found)

    thread = Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


@contextmanager
def served(storage: str, folder: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """A server: what it prints, and the process that serves."""
    command = [Path(executable).parent / "legacy-queue", "serve", "--port", "0"]
    command += ["--storage", storage, "--data-dir", folder / "data"]
    with (folder / "log").open("ab") as log, Popen(command, stdout=PIPE, stderr=log, text=True) as server:
        try:
            assert server.stdout
            line = json.loads(server.stdout.readline())
            children = Path(f"/proc/{line['pid']}/task/{line['pid']}/children").read_text().split()
            names = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
            yield line, next(pid for pid, name in names.items() if b"node" not in name)
        finally:
            server.terminate()


def create(line: dict[str, Any], group: str, count: int, payload: Any) -> None:
    """So many tasks with this payload in the group."""
    client = Client(line)
    for _ in range(count):
        client.call("PUT", f"/task/{slugid()}", definition(group, payload))


def list_all(line: dict[str, Any], group: str) -> tuple[int, int]:
    """How many tasks the group has, and on how many pages."""
    client, tasks, pages, more = Client(line), 0, 0, ""
    while True:
        page = client.call("GET", f"/task-group/{group}/list{more}")
        tasks, pages = tasks + len(page["tasks"]), pages + 1
        if "continuationToken" not in page:
            return tasks, pages
        more = f"?continuationToken={page['continuationToken']}"


def measure(storage: str, line: dict[str, Any], pid: int, group: str, options: Any) -> None:
    """List the group to its end, so many times at once."""
    create(line, small := slugid(), 3, [])
    list_all(line, small)  # what the first call of a process takes
    before, start = resident(pid), time.perf_counter()
    with peak(pid) as found, ThreadPoolExecutor(options.listings) as pool:
        listed = set(pool.map(lambda _: list_all(line, group), range(options.listings)))
    seconds = time.perf_counter() - start
    ((tasks, pages),) = listed
    assert tasks == options.tasks, f"{tasks} tasks were listed"
    print(
        f"{storage}, {options.payload}: {options.listings} listings of {tasks} tasks on {pages} pages: "
        f"{before:.0f} MB before, {found[0]:.0f} MB at most: {found[0] - before:.0f} MB more; "
        f"{found[1] - before:.0f} MB more afterwards; {seconds:.1f} s",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--storage", choices=["azurite", "memory"], help="both unless given")
    parser.add_argument("--tasks", type=int, default=100, help="in one group")
    parser.add_argument("--kilobytes", type=int, default=900, help="of each task's payload")
    parser.add_argument("--listings", type=int, default=6, help="at once")
    parser.add_argument(
        "--payload", choices=["text", "objects"], default="text", help="one text, or many objects"
    )
    options = parser.parse_args()
    size = options.kilobytes * 1000
    objects = [_OBJECT] * (size // (len(json.dumps(_OBJECT)) + 2))
    payload = "x" * size if options.payload == "text" else objects
    for storage in [options.storage] if options.storage else ["memory", "azurite"]:
        group = slugid()
        with tempfile.TemporaryDirectory() as name:
            with served(storage, Path(name)) as (line, pid):
                create(line, group, options.tasks, payload)
                if storage == "memory":
                    measure(storage, line, pid, group, options)
            if storage == "azurite":
                with served(storage, Path(name)) as (line, pid):
                    measure(storage, line, pid, group, options)


if __name__ == "__main__":
    main()
