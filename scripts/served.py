"""A real server for the scripts that measure one: started, called and looked at from outside."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import urlsplit

from legacy_queue.domain.hawk import sign_header
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time

_TICKS = os.sysconf("SC_CLK_TCK")

Line = dict[str, Any]  # what a server prints when it is ready


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[Line, Popen[str]]]:
    """``legacy-queue serve`` with these options, its data and its log in the folder; SIGTERM ends it."""
    program = str(Path(sys.executable).parent / "legacy-queue")
    command = [program, "serve", "--port", "0", "--data-dir", str(folder / "data"), *options]
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("ab") as log, Popen(command, stdout=PIPE, stderr=log, text=True) as server:
        try:
            assert server.stdout
            yield json.loads(server.stdout.readline()), server
        finally:
            server.terminate()


def process_of(line: Line) -> int:
    """The one that serves: not Azurite."""
    arbiter = line["pid"]
    children = Path(f"/proc/{arbiter}/task/{arbiter}/children").read_text().split()
    return next(int(pid) for pid in children if b"node" not in Path(f"/proc/{pid}/cmdline").read_bytes())


def cpu(pid: int) -> float:
    """Seconds that the process has computed so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def memory(pid: int) -> float:
    """Resident MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def authorization(line: Line, method: str, target: str) -> str:
    """The Hawk header of a request; ``target`` is its path with its query."""
    url = urlsplit(line["rootUrl"])
    return sign_header(
        client_id=line["credentials"]["clientId"],
        access_token=line["credentials"]["accessToken"],
        method=method,
        target=target,
        host=url.hostname or "",
        port=url.port or 80,
        now=datetime.now(UTC),
        nonce=slugid(),
    )


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
