"""A page of another origin as a client: preflights, calls, errors, uploads and downloads, over HTTP."""

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from .http_queue import Queue, definition, slugid
from .processes import LONG, serve
from .uploads import TEXT, body

ORIGIN = "https://tools.example.com"
CONTENT = b"from a page"


def as_page(method: str, url: str, data: bytes = b"", **headers: str) -> requests.Response:
    """The answer to a request of a page; its preflight was granted, and the page may read the answer."""
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": ",".join(headers)}
    granted = requests.options(url, headers={"Origin": ORIGIN, **asked}, timeout=LONG)
    assert granted.status_code == 204
    assert method in granted.headers["Access-Control-Allow-Methods"].split(",")
    assert granted.headers["Access-Control-Allow-Headers"] == ",".join(headers)
    answer = requests.request(
        method, url, data=data, headers={"Origin": ORIGIN, **headers}, timeout=LONG, allow_redirects=False
    )
    for each in (granted, answer):
        assert each.headers["Access-Control-Allow-Origin"] == ORIGIN
    return answer


def call(queue: Queue, method: str, path: str, content: Any = None) -> requests.Response:
    url = queue.server.base_url + path
    data = b"" if content is None else json.dumps(content).encode()
    content_type = "" if content is None else "application/json"
    signed = {"authorization": queue.header(method, url, data, content_type)}
    return as_page(method, url, data, **signed, **({"content-type": content_type} if content_type else {}))


def test_a_page_of_an_allowed_origin_calls_uploads_downloads_and_reads_errors(tmp_path: Path) -> None:
    with serve(tmp_path, "--storage", "memory", "--cors-origins", ORIGIN) as server:
        queue, task = Queue(server), f"/task/{slugid()}"
        assert call(queue, "PUT", task, definition("page")).status_code == 200
        assert call(queue, "PUT", task, definition("page", retries=3)).status_code == 409
        assert as_page("PUT", server.base_url + task, b"{}").status_code == 403
        worker = {"workerGroup": "pages", "workerId": "one"}
        assert call(queue, "POST", f"{task}/runs/0/claim", worker).status_code == 200
        for storage_type, more in (("s3", {}), ("azure", {"x-ms-blob-type": "BlockBlob"})):
            artifact = f"{task}/runs/0/artifacts/public%2F{storage_type}"
            created = call(queue, "POST", artifact, body(storage_type)).json()
            headers = {"content-type": TEXT, **more}
            assert as_page("PUT", created["putUrl"], CONTENT, **headers).status_code in (200, 201)
            redirect = as_page("GET", server.base_url + artifact)
            assert redirect.status_code == 303
            assert as_page("GET", redirect.headers["Location"]).content == CONTENT
        assert as_page("GET", server.base_url + "/nothing").status_code == 404
        events = as_page("GET", f"{server.root_url}/events?follow=false&lastEventId={'0' * 16}")
        assert "event: task-pending" in events.text


def test_a_page_may_read_why_its_request_is_malformed(tmp_path: Path) -> None:
    with serve(tmp_path, "--storage", "memory", "--cors-origins", "*") as server:
        address = ("127.0.0.1", urlsplit(server.root_url).port)
        with socket.create_connection(address, LONG) as connection:
            connection.sendall(b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * 10_000))
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 414 ")
        assert b"\r\nAccess-Control-Allow-Origin: *\r\n" in answer
