"""Requests with hostile paths, bodies or headers are refused on every route, with a short answer."""

import re
from ipaddress import ip_network
from itertools import cycle
from urllib.parse import quote

import pytest
from werkzeug.test import Client

from legacy_queue.http.declared_endpoints import QUEUE, served_by
from tests.http.calls import POOL, ROOT, ROOT_URL, TASK_ID, Queue, hawk, refused, succeeded

STRANGE = [
    "%00", "a%00b", "%2F", "a%2Fb", "%2f..%2f", "%2E%2E", "..%2F..%2Fping", "%ff", "%ff%fe", "%c0%af",
    "%ed%a0%80",
    "%E4", "%", "%2", "%zz", "%25", "%2525", "%3F", "%23", "+", "~", "*", "@", "a;b=c", "a,b",
    "%0d%0aX:y", "%20", "%7F",
    "\u00ff\u0080", "\u00c3\u00a4", "'", '"', "<taskId>", "{{x}}", "\\", "|", "a:b", "A" * 4000, "%41" * 1300,
    TASK_ID + "%0A", TASK_ID + "%00", TASK_ID + "%20", f"%20{TASK_ID}",
]  # fmt: skip


@pytest.fixture(scope="module")
def queue() -> Queue:
    """One server for all tests, because no request changes anything."""
    return Queue()


@pytest.mark.parametrize("segment", STRANGE, ids=lambda text: ascii(text)[:30])
def test_a_strange_path_segment_is_a_400_or_404(queue: Queue, segment: str) -> None:
    # mohawk would sign these characters differently
    plain = segment.isascii() and not set(segment) & set('<>{}"|\\;')
    for method, target in [
        ("GET", f"/v1/task/{segment}"),
        ("PUT", f"/v1/task/{segment}"),
        ("POST", f"/v1/task/{TASK_ID}/runs/{segment}/claim"),
        ("GET", f"/v1/poll-task-url/{segment}/w"),
        ("GET", f"/{segment}"),
        ("GET", f"/schemas/queue/v1/{segment}.json"),
    ]:
        answer = queue.send(method, target, credentials=ROOT if plain else None)
        assert answer.status_code in (400, 404), target
        assert answer.get_json()["code"] in ("InvalidRequestArguments", "ResourceNotFound")


ALMOST = [
    "/v1//ping", "/v1/ping/", "/v1/./ping", "/v1/task/../ping", "/v1/task//status", "/v1%2Fping",
    "/v1/ping%2F", "/v1/ping;x", "/v1/%70ing", "/V1/ping", "/api/queue/ping", "/api/queue/v2/ping", "/ping",
    f"/v1/task/{TASK_ID}/runs/0", f"/v1/task/{TASK_ID}/runs//claim",
]  # fmt: skip


@pytest.mark.parametrize("target", ALMOST)
def test_a_path_that_is_only_similar_to_a_route_is_not_served(queue: Queue, target: str) -> None:
    answer = queue.http.open("/", environ_overrides={"RAW_URI": target, "REQUEST_URI": target})
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize(("host", "status"), [("queue.test", 200), ("elsewhere:1234", 421), ("", 200)])
def test_in_an_absolute_request_target_the_host_is_taken_from_the_target(host: str, status: int) -> None:
    queue = Queue(allowed_hosts=("queue.test",))
    for sent in ("queue.test", "elsewhere"):
        environ = {"RAW_URI": f"http://{host}/v1/ping", "HTTP_HOST": sent}
        answer = queue.http.open("/", environ_overrides=environ)
        assert answer.status_code == (status if host or sent == "queue.test" else 421)


def test_a_client_that_sends_an_absolute_request_target_signs_the_targets_host() -> None:
    queue, path = Queue(allowed_hosts=("*",)), "/v1/poll-task-url/provisioner/worker"
    signed = hawk(ROOT, "GET", f"http://queue.example.com{path}", queue.clock.now())
    environ = {"RAW_URI": f"http://queue.example.com{path}", "HTTP_HOST": "elsewhere"}
    succeeded(queue.http.open("/", environ_overrides={**environ, "HTTP_AUTHORIZATION": signed}))
    without_path = queue.http.open("/", environ_overrides={"RAW_URI": "http://queue.test?x=1"})
    assert without_path.status_code == 403, "the target is the root page, which needs a cookie"


def test_a_path_can_begin_with_several_slashes(queue: Queue) -> None:
    for path in ("//v1/ping", "//api/queue/v1/ping", "///v1/ping", "//ready"):
        succeeded(queue.send("GET", path, credentials=None))


IDS: list[tuple[str, str, list[str]]] = [
    ("task", "taskId", ["x", TASK_ID[:-1], TASK_ID + "A", TASK_ID[:-1] + "B", "A" * 22]),
    ("listTaskGroup", "taskGroupId", [TASK_ID + "A"]),
    ("claimTask", "runId", ["-1", "01", "1001", "1e3", "0x1", "1.0", "+1", "\u0661", "99999999999"]),
]


def test_an_invalid_task_id_group_id_or_run_id_is_refused(queue: Queue) -> None:
    for name, parameter, wrong in IDS:
        for value in wrong:
            params = {"taskId": TASK_ID, parameter: value} if name != "listTaskGroup" else {parameter: value}
            answer = queue.call(name, credentials=None, **{key: quote(params[key]) for key in params})
            words = "a number from 0 to 1000" if parameter == "runId" else "a slugid: 22 characters such as"
            refused(answer, 400, "InvalidRequestArguments", f"{parameter} is {value!r}: expected {words}")
            assert answer.get_json()["requestInfo"]["params"] == params


WORDS = [
    ("/v1/provisioners?limit=0", "limit is '0': expected a number from 1 to 1000"),
    ("/inspect/v1/tasks?state=new", "state is 'new': expected one of all, unresolved, unscheduled, pending"),
    (f"/v1/task/{TASK_ID}/artifacts/public/%C3%A9", "name is 'public/é': expected 1 to 1024 printable ASCII"),
    ("/v1/task-queues/a", "taskQueueId is 'a': expected <provisionerId>/<workerType>, each 1 to 38 letters"),
]


@pytest.mark.parametrize(("target", "message"), WORDS)
def test_the_error_of_a_wrong_parameter_says_in_words_what_was_expected(
    queue: Queue, target: str, message: str
) -> None:
    refused(queue.send("GET", target), 400, "InvalidRequestArguments", message)


@pytest.mark.parametrize("escape", ["%", "%2", "%zz", "%2g", "a%2F%"])
def test_an_incomplete_percent_escape_in_a_path_or_a_query_is_refused(queue: Queue, escape: str) -> None:
    for target in (f"/v1/task/{escape}", f"/v1/ping?limit={escape}"):
        refused(queue.send("GET", target, credentials=None), 400, "InvalidRequestArguments", "percent escape")


@pytest.mark.parametrize(
    "query",
    ["a=1", "a", "limit=1", "%ff=1", "a=%ff", "Bewit=x", "=x", "continuationToken=", "a=1&a=2", "%00"],
)
def test_an_unknown_query_parameter_is_refused(queue: Queue, query: str) -> None:
    refused(queue.send("GET", f"/v1/ping?{query}", credentials=None), 400, "InvalidRequestArguments")


# --- bodies and headers


MAX_ANSWER = 16 * 1024  # bytes
_SEGMENTS = {"taskId": "VLdaX5vAQ0iW8JIr3sGQZw", "taskGroupId": "VLdaX5vAQ0iW8JIr3sGQZw", "runId": "0"}


HOSTILE = [
    b"[" * 100_000 + b"]" * 100_000,
    b"{" + b",".join([b'"key":1'] * 130_000) + b"}",
    b'{"routes": [' + b",".join([b"0.123456789012345678"] * 20_000) + b"]}",
    b"1" * 1_000_000,
    b" " * 2 * 1024 * 1024,
]


def test_a_hostile_body_is_answered_in_few_bytes_and_never_with_a_5xx(queue: Queue) -> None:
    """tests/domain/test_hawk.py does the same with headers."""
    for endpoint, body in zip((*QUEUE, *served_by("object")), cycle(HOSTILE), strict=False):
        prefix = "/api/object/v1" if endpoint.service == "object" else "/v1"
        target = prefix + re.sub(r"<(\w+)>", lambda match: _SEGMENTS.get(match[1], "x"), endpoint.route)
        answer = queue.send(endpoint.method, target, body)
        assert answer.status_code < 500, endpoint.name
        assert len(answer.data) <= MAX_ANSWER, endpoint.name


# every header that our code, Flask or Werkzeug reads
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
def test_a_header_that_is_not_utf_8_never_leads_to_a_500(method: str, target: str) -> None:
    queue = Queue(control=True, trusted_proxy=(ip_network("127.0.0.0/8"),), cors_origins=("*",))
    target = target.format(**{**_SEGMENTS, **POOL}, **signed_targets(queue))
    path, _, query = target.partition("?")
    http = Client(queue.server.app, use_cookies=False)  # otherwise Werkzeug removes the header
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
    """The targets of signed URLs: a poll, and the upload and the download of an artifact of each kind."""
    (first, *_) = queue.call("pollTaskUrls", **POOL).get_json()["queues"]
    urls = {"poll": first["signedPollUrl"]}
    task_id = queue.running()
    for kind in ("s3", "azure"):
        urls[kind] = queue.artifact(task_id, kind, kind).get_json()["putUrl"]
        queue.upload(urls[kind], b"content", x_ms_blob_type="BlockBlob")
        found = queue.call("getArtifact", taskId=task_id, runId=0, name=kind)
        urls[f"{kind} content"] = found.headers["Location"]
    return {name: url.removeprefix(ROOT_URL) for name, url in urls.items()}
