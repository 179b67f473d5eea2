"""A large artifact goes through the server into Azurite and back; the server never holds it in memory."""

import hashlib
import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import requests

from .http_queue import Queue, definition, in_time
from .processes import LONG, Server

MIB = 1024**2
SIZE = 128 * MIB
PIECE = bytes(range(256)) * 4096  # a MiB
MAX_GROWTH = 64  # MiB: a few blocks, and the memory of a request


def pieces() -> Iterator[bytes]:
    for number in range(SIZE // MIB):
        yield number.to_bytes(8, "big") + PIECE[8:]


def peaks(server: Server) -> dict[int, int]:
    """The peak memory of each of the server's processes, in bytes, by process id."""
    peak_of = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, status = (folder / "cmdline").read_bytes(), (folder / "status").read_text()
        except OSError:  # it has ended
            continue
        if str(server.data_dir).encode() in words and b"serve" in words.split(b"\0"):
            peak_of[int(folder.name)] = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
    return peak_of


def put(url: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=LONG)
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(SIZE)}
    connection.request("PUT", f"{parts.path}?{parts.query}", pieces(), headers)
    with closing(connection):
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
    return str(answer.headers["etag"])


def test_an_artifact_of_128_mib_needs_less_than_64_mib_of_memory(azurite_server: Server) -> None:
    queue = Queue(azurite_server)
    task_id = queue.create(definition("large"))
    assert queue.claim_by_name(task_id, 0).status_code == 200
    body = {"storageType": "s3", "contentType": "application/octet-stream", "expires": in_time(hours=1)}
    before = peaks(azurite_server)
    artifact = f"/task/{task_id}/runs/0/artifacts/public%2Flarge"
    etag = put(queue.ask("POST", artifact, body)["putUrl"])
    after = peaks(azurite_server)
    assert before
    assert before.keys() == after.keys()
    growth = {pid: (after[pid] - before[pid]) // MIB for pid in after}
    assert max(growth.values()) < MAX_GROWTH
    md5 = hashlib.md5(usedforsecurity=False)
    url = f"{azurite_server.base_url}{artifact}"
    with requests.get(url, stream=True, timeout=LONG) as answer:
        assert answer.headers["content-type"] == "application/octet-stream"
        for chunk in answer.iter_content(MIB):
            md5.update(chunk)
    assert etag == f'"{md5.hexdigest()}"'
