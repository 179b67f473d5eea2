"""Memory of a real server while large tasks are listed, by several clients at once; run by scripts/lists.

Each listing goes through all pages of one group. The server on Azurite is restarted between creating the
tasks and listing them; with memory storage it has them in its own memory before the listings begin.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from served import authorization, definition, memory, process_of, served

from legacy_queue.domain.ids import slugid

_SAMPLE_EVERY = 0.005  # seconds
_OBJECT = {"a": [1, 2]}


class Client:
    """One kept-alive connection."""

    def __init__(self, line: dict[str, Any]) -> None:
        self._line, url = line, urlsplit(line["baseUrl"])
        self._path = url.path
        self._connection = HTTPConnection(url.netloc, timeout=120)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer, which must be 200."""
        target = self._path + path
        headers = {
            "Authorization": authorization(self._line, method, target),
            "Content-Type": "application/json",
        }
        self._connection.request(method, target, json.dumps(body) if body else None, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
        return json.loads(text)


@contextmanager
def peak(pid: int) -> Iterator[list[float]]:
    """The highest and the last of what the process has meanwhile, in MB: looked at every 5 ms."""
    found, stop = [memory(pid)] * 2, Event()

    def look() -> None:
        while not stop.wait(_SAMPLE_EVERY):
            found[1] = memory(pid)
            found[0] = max(found)

    thread = Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def create(line: dict[str, Any], group: str, count: int, payload: Any) -> None:
    """So many tasks with this payload in the group."""
    client = Client(line)
    for _ in range(count):
        task = definition("lists", taskGroupId=group, payload={"large": payload})
        client.call("PUT", f"/task/{slugid()}", task)


def list_all(line: dict[str, Any], group: str) -> tuple[int, int]:
    """How many tasks the group has, and on how many pages."""
    client, tasks, pages, more = Client(line), 0, 0, ""
    while True:
        page = client.call("GET", f"/task-group/{group}/list{more}")
        tasks, pages = tasks + len(page["tasks"]), pages + 1
        if "continuationToken" not in page:
            return tasks, pages
        more = f"?continuationToken={page['continuationToken']}"


def measure(storage: str, line: dict[str, Any], group: str, options: Any) -> None:
    """List the group to its end, so many times at once."""
    create(line, small := slugid(), 3, [])
    list_all(line, small)  # what the first call of a process takes
    pid = process_of(line)
    before, start = memory(pid), time.perf_counter()
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
            with served(Path(name), "--storage", storage) as (line, _):
                create(line, group, options.tasks, payload)
                if storage == "memory":
                    measure(storage, line, group, options)
            if storage == "azurite":
                with served(Path(name), "--storage", storage) as (line, _):
                    measure(storage, line, group, options)


if __name__ == "__main__":
    main()
