"""A real server for the scripts that measure one: started, called and looked at from outside."""

import base64
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlsplit

from legacy_queue.domain.hawk import SignedRequest, sign_header
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time

_TICKS = os.sysconf("SC_CLK_TCK")

_PROGRAM = (str(Path(sys.executable).parent / "legacy-queue"),)

Line = dict[str, Any]  # what a server prints when it is ready


@contextmanager
def served(
    folder: Path,
    *options: str,
    program: Sequence[str] = _PROGRAM,
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[Line, Popen[str]]]:
    """``legacy-queue serve`` with these options, its data and its log in the folder; SIGTERM ends it.

    The folder is made where it is missing. ``variables`` are added to the environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [*program, "serve", "--port", "0", "--data-dir", str(folder / "data"), *options]
    environment = {**os.environ, **(variables or {})}
    with (
        (folder / "log").open("ab") as log,
        Popen(command, stdout=PIPE, stderr=log, text=True, env=environment) as server,
    ):
        try:
            assert server.stdout
            yield json.loads(server.stdout.readline()), server
        finally:
            server.terminate()


def processes_of(line: Line) -> dict[str, list[int]]:
    """The pids of ``server``, its supervisor first, and of ``azurite``, which may have none."""
    arbiter = line["pid"]
    found: dict[str, list[int]] = {"server": [arbiter], "azurite": []}
    for pid in map(int, Path(f"/proc/{arbiter}/task/{arbiter}/children").read_text().split()):
        is_node = b"node" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        found["azurite" if is_node else "server"].append(pid)
    return found


def process_of(line: Line) -> int:
    """The first process that serves: neither Azurite nor the supervisor."""
    return processes_of(line)["server"][1]


def cpu(pid: int) -> float:
    """Seconds that the process has computed so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def computed(pid: int) -> float:
    """Seconds that its main thread has computed so far, exactly. Source: sched-stats.rst of Linux."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory(pid: int) -> float:
    """Resident MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def authorization(
    line: Line,
    method: str,
    target: str,
    credentials: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> str:
    """The Hawk header of a request; ``target`` is its path with its query.

    ``credentials`` are those of a claim; the server's own otherwise.
    It covers the body, of JSON, where that is given.
    """
    url = urlsplit(line["rootUrl"])
    who = credentials or line["credentials"]
    certificate = who.get("certificate")
    ext = f'{{"certificate":{certificate}}}' if certificate else ""
    content_type = None if body is None else "application/json"
    request = SignedRequest(
        method, target, url.hostname or "", url.port or 80, None, content_type, body or b""
    )
    ext = base64.b64encode(ext.encode()).decode()
    return sign_header(request, who["clientId"], who["accessToken"], datetime.now(UTC), slugid(), ext)


def definition(worker_type: str, **more: Any) -> dict[str, Any]:
    """What createTask is given."""
    now = datetime.now(UTC)
    return {
        "provisionerId": "waiting",
        "workerType": worker_type,
        "created": format_time(now),
        "deadline": format_time(now + timedelta(hours=1)),
        "payload": {},
        "metadata": {
            "name": "n",
            "description": "d",
            "owner": "o@example.com",
            "source": "http://example.com",
        },
        **more,
    }
