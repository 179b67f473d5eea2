"""Hostile requests without credentials are refused in few bytes, on every route."""

import json
import re
import string
from collections.abc import Iterator
from ipaddress import ip_network
from itertools import cycle, product
from typing import Any

import pytest
from werkzeug.test import Client

from legacy_queue.http.app import ENDPOINTS, OBJECT_ENDPOINTS
from tests.http.calls import POOL, ROOT_URL, Queue, task_body

MAX_ANSWER = 16 * 1024  # bytes
_MB = 1024 * 1024
_TIME = "2030-01-01T00:00:00.000Z"
_SEGMENTS = {"taskId": "VLdaX5vAQ0iW8JIr3sGQZw", "taskGroupId": "VLdaX5vAQ0iW8JIr3sGQZw", "runId": "0"}


def definition(**changes: Any) -> bytes:
    """What createTask is given, with the changes, up to 1 MiB of it."""
    times = {"created": _TIME, "deadline": _TIME}
    return compact(task_body(**{**times, **changes}))


def compact(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _metadata(**changes: str) -> dict[str, str]:
    return {**task_body()["metadata"], **changes}


def bodies() -> Iterator[tuple[str, bytes]]:
    """Bodies of up to 1 MiB each, and a larger body."""
    keys = ["".join(letters) for letters in product(string.ascii_letters, repeat=3)][:130_000]
    yield "130,000 distinct keys", b"{" + b",".join(b'"%s":1' % key.encode() for key in keys) + b"}"
    yield "130,000 equal keys", b"{" + b",".join([b'"key":1'] * 130_000) + b"}"
    yield "distinct keys, the last equal", b"{" + b",".join(b'"%x":1' % n for n in range(90_000)) + b',"0":1}'
    yield "140,000 numbers as routes", definition(routes=list(range(140_000)))
    yield "140,000 scopes", definition(scopes=["x:yz"] * 140_000)
    yield "10,000 scopes", definition(scopes=[f"{number:05}" * 18 for number in range(10_000)])
    yield "110,000 dependencies", definition(dependencies=[str(number) for number in range(110_000)])
    yield "80,000 tags", definition(tags={f"{number:05}": 1 for number in range(80_000)})
    yield "80,000 unknown properties", definition(**{f"{number:05}": 1 for number in range(80_000)})
    yield "an owner of 1 MB", definition(metadata=_metadata(owner="a@" + "a." * 500_000))
    yield "a source of 1 MB", definition(metadata=_metadata(source="http://" + "x" * 1_000_000))
    yield "10,000 parts that are none", compact({"storageType": "blob", "parts": [{"x": 1}] * 100_000})
    yield "200,000 etags", compact({"etags": ["x"] * 200_000})
    yield "330,000 arrays in a payload", definition(payload={"a": [[]] * 330_000})
    yield "500,000 numbers in a payload", definition(payload={"a": [1] * 500_000})
    yield "floats of 18 digits", b"[" + b",".join([b"0.123456789012345678"] * 50_000) + b"]"
    yield "depth 100,000", b"[" * 100_000 + b"]" * 100_000
    yield "depth 190, 300,000 wide", b"[" * 190 + b",".join([b"[]"] * 300_000) + b"]" * 190
    yield "escapes of 1 MB", b'"' + rb"\u0041" * 170_000 + b'"'
    yield "an integer of 1,000,000 digits", b"1" * 1_000_000
    yield "a float of 1,000,000 digits", b"0." + b"1" * 1_000_000
    yield "an exponent of 1,000,000 digits", b"1e" + b"9" * 1_000_000
    yield "1,000,000 minus signs", b"-" * 1_000_000
    yield "1,000,000 spaces", b" " * 1_000_000 + b"1"
    yield "2 MB", b" " * 2 * _MB
    entities = b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10))
    yield "entities", b'<!DOCTYPE x [<!ENTITY a0 "x">' + entities + b"]><BlockList>&a9;</BlockList>"


def test_a_hostile_body_is_answered_in_few_bytes_and_never_with_a_5xx(queue: Queue) -> None:
    """Each is sent to an endpoint, and each endpoint gets one. Headers: tests/domain/test_hawk.py."""
    every = (*ENDPOINTS, *OBJECT_ENDPOINTS)
    hostile = list(bodies())
    count = max(len(every), len(hostile))
    for _, endpoint, (what, body) in zip(range(count), cycle(every), cycle(hostile), strict=False):
        prefix = "/api/object/v1" if endpoint.service == "object" else "/v1"
        target = prefix + re.sub(r"<(\w+)>", lambda match: _SEGMENTS.get(match[1], "x"), endpoint.route)
        answer = queue.send(endpoint.method, target, credentials=None, data=body)
        assert answer.status_code < 500, (endpoint.name, what)
        assert len(answer.data) <= MAX_ANSWER, (endpoint.name, what)


# each that the code, Flask or Werkzeug reads
HEADERS = """
    Accept Accept-Encoding Accept-Language Access-Control-Request-Headers
    Access-Control-Request-Method Authorization Content-Encoding Content-MD5 Content-Type Cookie
    Date Forwarded Host If-Match If-Modified-Since If-None-Match If-Range If-Unmodified-Since
    Last-Event-ID Origin Prefer Range Referer Sec-Fetch-Site User-Agent Via X-Forwarded-For
    X-Forwarded-Host X-Forwarded-Port X-Forwarded-Proto X-Request-Id x-ms-blob-cache-control
    x-ms-blob-content-encoding x-ms-blob-content-md5 x-ms-blob-content-type x-ms-blob-type
    x-ms-client-request-id x-ms-content-crc64 x-ms-date x-ms-range x-ms-version
"""
_PARSED = {
    **dict.fromkeys(("Cookie", "Forwarded", "Prefer", "Content-Type", "Authorization"), "a=\xff; b=\xb2"),
    **dict.fromkeys(("Range", "x-ms-range", "If-Range"), "bytes=\xb2-\xb3"),
    **dict.fromkeys(("Host", "X-Forwarded-Host", "Origin"), "\xb2:\xb2"),
}


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("POST", "/ui/tasks/{taskId}"),
        ("GET", "/events?follow=false"),
        ("POST", "/v1/claim-work/{provisionerId}/{workerType}"),
        ("OPTIONS", "/v1/ping"),
        ("GET", "{poll}"),
        ("PUT", "{s3}"),
        ("GET", "{s3 content}"),
        ("PUT", "{azure}"),
        ("GET", "{azure content}"),
    ],
)
def test_a_header_of_bytes_that_are_not_utf_8_is_answered_without_a_500(method: str, target: str) -> None:
    queue = Queue(control=True, trusted_proxy=(ip_network("127.0.0.0/8"),), cors_origins=("*",))
    target = target.format(**{**_SEGMENTS, **POOL}, **signed_targets(queue))
    path, _, query = target.partition("?")
    http = Client(queue.server.app, use_cookies=False)  # else Werkzeug takes the header away
    plain = dict.fromkeys(HEADERS.split(), "\xff\xfe")
    for name, value in (*plain.items(), *_PARSED.items()):
        answer = http.open(
            path,
            base_url=ROOT_URL,
            query_string=query,
            method=method,
            headers={name: value},
            environ_overrides={"REMOTE_ADDR": "127.0.0.1", "RAW_URI": target},
            buffered=True,
        )
        assert answer.status_code < 500, (name, value)


def signed_targets(queue: Queue) -> dict[str, str]:
    """What needs no credentials: a poll, and the upload and the download of an artifact of each kind."""
    (first, *_) = queue.call("pollTaskUrls", **POOL).get_json()["queues"]
    urls = {"poll": first["signedPollUrl"]}
    task_id = queue.running()
    for kind in ("s3", "azure"):
        urls[kind] = queue.artifact(task_id, kind, kind).get_json()["putUrl"]
        queue.upload(urls[kind], b"content", x_ms_blob_type="BlockBlob")
        found = queue.call("getArtifact", taskId=task_id, runId=0, name=kind)
        urls[f"{kind} content"] = found.headers["Location"]
    return {name: url.removeprefix(ROOT_URL) for name, url in urls.items()}
