"""Hawk where it meets HTTP. Expected signatures are mohawk's; the pure rules are tested in tests/domain."""

import base64
import json
from datetime import timedelta
from itertools import product
from typing import Any

import mohawk.base
import mohawk.bewit
import pytest

from legacy_queue.domain.authentication import Client
from tests.http.calls import (
    DECLARED,
    NOW,
    ROOT,
    ROOT_URL,
    TASK_ID,
    Credentials,
    Queue,
    hawk,
    play,
    refused,
    scene,
    succeeded,
    task_body,
)

PROXIED = {"x-forwarded-host": "tc.example.com", "x-forwarded-port": "8443", "x-forwarded-proto": "https"}


POLLING = "/v1/poll-task-url/p/w"  # which needs scopes


def raw_target(name: str) -> str:
    target = "/v1" + DECLARED[name].route
    for parameter, value in scene(name).params.items():
        target = target.replace(f"<{parameter}>", str(value))
    return target


def bewit(target: str, life: timedelta = timedelta(minutes=5), credentials: Credentials = ROOT) -> str:
    resource = mohawk.base.Resource(
        credentials={"id": credentials.client_id, "key": credentials.access_token, "algorithm": "sha256"},
        method="GET",
        url=ROOT_URL + target,
        nonce="",
        timestamp=int((NOW + life).timestamp()),
        ext=credentials.ext,
    )
    return str(mohawk.bewit.get_bewit(resource))


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "Hawk",
        "Hawk ",
        "hawk id=",
        'Hawk id="root"',
        "Basic cm9vdDpyb290",
        "Bearer " + "x" * 20_000,
        'Hawk id="root", ts="1520139967", nonce="abcdef", mac="AAAA"',
        'Hawk id="root", ts="1520139967", nonce="abcdef", mac="AAAA", ext="x"',
        'Hawk id="nobody", ts="1", nonce="a", mac="AAAA"',
        "Hawk " + "," * 10_000,
        "Hawk \u00ff\u00fe",
    ],
    ids=lambda header: ascii(header)[:40],
)
def test_an_invalid_authorization_header_is_refused_where_scopes_are_needed(
    queue: Queue, header: str
) -> None:
    headers = {"Authorization": header}
    answer = queue.send("GET", POLLING, credentials=None, headers=headers)
    refused(answer, 401, "AuthenticationFailed")
    succeeded(queue.send("GET", "/v1/ping", credentials=None, headers=headers))


def test_all_invalid_credentials_get_the_same_message() -> None:
    queue = Queue()
    ended = hawk(ROOT, "GET", ROOT_URL + POLLING, NOW - timedelta(minutes=16))
    other_key = hawk(Credentials("root", "x" * 30), "GET", ROOT_URL + POLLING, NOW)
    unknown = hawk(Credentials("nobody", "x" * 30), "GET", ROOT_URL + POLLING, NOW)
    answers = [
        queue.send("GET", POLLING, headers={"Authorization": header})
        for header in (ended, other_key, unknown, "Basic x")
    ]
    assert len({answer.get_json()["message"] for answer in answers}) == 1


@pytest.mark.parametrize(("skew", "status"), [(899, 200), (900, 200), (901, 401)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_clients_clock_may_differ_by_15_minutes(skew: int, sign: int, status: int) -> None:
    queue = Queue()
    queue.clock.advance(timedelta(milliseconds=110))  # a whole second
    then = queue.clock.now() + timedelta(seconds=sign * skew)
    header = hawk(ROOT, "GET", ROOT_URL + POLLING, then)
    assert queue.send("GET", POLLING, headers={"Authorization": header}).status_code == status


BODY = json.dumps(task_body()).encode()


@pytest.mark.parametrize(
    ("hashed", "status"),
    [
        ((BODY, "application/json"), 200),
        ((BODY, "application/json; charset=utf-8"), 200),
        ((BODY, "Application/JSON"), 200),
        ((BODY, ""), 401),
        ((BODY, "text/plain"), 401),
        ((BODY + b" ", "application/json"), 401),
        ((b"", "application/json"), 401),
        ((b"", ""), 401),
    ],
)
def test_a_payload_hash_that_does_not_match_is_a_401(
    queue: Queue, hashed: tuple[bytes, str], status: int
) -> None:
    """The original answered 500."""
    target = f"/v1/task/{TASK_ID}"
    header = hawk(ROOT, "PUT", ROOT_URL + target, NOW, *hashed)
    answer = queue.send("PUT", target, BODY, headers={"Authorization": header})
    assert answer.status_code == status
    assert queue.call("task", taskId=TASK_ID).status_code == (200 if status == 200 else 404)


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        *product(["cancelTask"], [None, "application/octet-stream", "application/json"]),
        *product(["pollTaskUrls", "createTask"], [None]),
    ],
)
def test_the_hash_of_an_empty_body_is_accepted(queue: Queue, name: str, content_type: str | None) -> None:
    """Python sends it with every call, on GET too."""
    example = scene(name)
    example.prepare(queue)
    method, target = DECLARED[name].method, raw_target(name)
    body = b"" if example.body is None else json.dumps(example.body).encode()
    header = hawk(ROOT, method, ROOT_URL + target, NOW, body, "application/json" if body else "")
    headers = {"Authorization": header}
    if content_type and not body:
        headers["Content-Type"] = content_type
    succeeded(queue.send(method, target, body, headers=headers))


@pytest.mark.parametrize("alphabet", [base64.standard_b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padding", ["=", ""])
def test_ext_may_be_in_either_base64_alphabet_with_or_without_padding(alphabet: Any, padding: str) -> None:
    queue = Queue()
    scopes = ["queue:poll-task-urls:p/~~~>>>???", "queue:poll-task-urls:p/w"]  # ~ > ? need + and /
    content = alphabet(json.dumps({"authorizedScopes": scopes}).encode()).decode().rstrip("=")
    ext = content + padding * (-len(content) % 4)
    assert set("+/") & set(ext) or set("-_") & set(ext)
    header = mohawk.Sender(
        {"id": ROOT.client_id, "key": ROOT.access_token, "algorithm": "sha256"},
        f"{ROOT_URL}/v1/poll-task-url/p/w",
        "GET",
        always_hash_content=False,
        ext=ext,
        _timestamp=int(NOW.timestamp()),
    ).request_header
    succeeded(queue.send("GET", "/v1/poll-task-url/p/w", headers={"Authorization": header}))
    refused(
        queue.send("GET", "/v1/poll-task-url/p/x", credentials=ROOT.narrowed(*scopes)),
        403,
        "InsufficientScopes",
    )


@pytest.mark.parametrize("name", ["pollTaskUrls", "listTaskGroup"])
def test_a_bewit_is_accepted_on_a_get(queue: Queue, name: str) -> None:
    target = raw_target(name)
    scene(name).prepare(queue)
    text = bewit(target).rstrip("=")
    for padding in ("=", ""):
        padded = text + padding * (-len(text) % 4)
        succeeded(queue.send("GET", f"{target}?bewit={padded}", credentials=None))


def test_a_private_artifact_needs_valid_credentials_and_a_public_one_none(queue: Queue) -> None:
    task_id = queue.running()
    wrong = Credentials("root", "x" * 30)
    for name in ("public/log", "private/log", "public"):
        succeeded(queue.artifact(task_id, name, "reference"))
        for params in ({"taskId": task_id, "runId": 0}, {"taskId": task_id}):
            call = "getArtifact" if "runId" in params else "getLatestArtifact"
            answer = queue.call(call, None, wrong, name=name, **params)
            if name.startswith("public/"):
                assert answer.status_code == 303
            else:
                refused(answer, 401, "AuthenticationFailed")


def test_a_head_request_may_have_a_bewit(queue: Queue) -> None:
    answer = queue.send("HEAD", f"/v1/ping?bewit={bewit('/v1/ping')}", credentials=None)
    assert answer.status_code == 200
    assert answer.data == b""


def test_a_bewit_is_valid_for_nothing_but_its_get(queue: Queue) -> None:
    good = bewit("/v1/poll-task-url/p/w")
    refusals = [
        queue.send("GET", f"/v1/poll-task-url/p/x?bewit={good}", credentials=None),
        queue.send("GET", f"/v1/poll-task-url/p/w?bewit={good}"),  # and a header
        queue.send("GET", f"/v1/poll-task-url/p/w?bewit={good}&bewit={good}", credentials=None),
        queue.send("GET", f"/v1/poll-task-url/p/w?bewit={good}x", credentials=None),
        queue.send("GET", "/v1/poll-task-url/p/w?bewit=", credentials=None),
        queue.send("GET", "/v1/poll-task-url/p/w?bewit", credentials=None),
        queue.send("GET", f"/api/queue/v1/poll-task-url/p/w?bewit={good}", credentials=None),
        queue.send(
            "GET",
            f"/v1/poll-task-url/p/w?bewit={bewit('/v1/poll-task-url/p/w', timedelta(seconds=-1))}",
            credentials=None,
        ),
    ]
    for answer in refusals:
        refused(answer, 401, "AuthenticationFailed")
        assert good not in answer.get_data(as_text=True)
    succeeded(queue.send("GET", f"/v1/poll-task-url/p/w?bewit={good}", credentials=None))


@pytest.mark.parametrize("name", ["createTask", "cancelTask"])
def test_a_bewit_is_refused_for_a_change(name: str) -> None:
    queue, example, target = Queue(), scene(name), raw_target(name)
    example.prepare(queue)
    body = b"" if example.body is None else json.dumps(example.body).encode()
    answer = queue.send(DECLARED[name].method, f"{target}?bewit={bewit(target)}", body, credentials=None)
    refused(answer, 401, "AuthenticationFailed")


def test_a_bewit_may_do_no_more_than_its_scopes(queue: Queue) -> None:
    target = "/v1/poll-task-url/p/w"
    narrow = ROOT.narrowed("queue:poll-task-urls:p/x")
    answer = queue.send("GET", f"{target}?bewit={bewit(target, credentials=narrow)}", credentials=None)
    refused(answer, 403, "InsufficientScopes", "`queue:poll-task-urls:p/w`")


@pytest.mark.parametrize(
    ("headers", "signed"),
    [
        (PROXIED, "https://tc.example.com:8443"),
        ({**PROXIED, "x-forwarded-port": "443"}, "https://tc.example.com"),
        ({"x-forwarded-host": "tc.example.com", "x-forwarded-proto": "https"}, "https://tc.example.com"),
        ({"x-forwarded-host": "tc.example.com:81", "x-forwarded-proto": "https"}, "https://tc.example.com:81"),
        ({"x-forwarded-host": "TC.example.com"}, "http://tc.example.com"),
        ({"x-forwarded-proto": "https"}, "https://queue.test"),
        ({"x-forwarded-port": "99"}, "http://queue.test:99"),
        ({"x-forwarded-host": "tc.example.com, inner.example.com"}, "http://tc.example.com"),
        ({"x-forwarded-proto": "https, http", "x-forwarded-host": "tc.example.com"}, "https://tc.example.com"),
        ({}, ROOT_URL),
    ],
    ids=str,
)  # fmt: skip
def test_a_trusted_proxy_says_which_host_and_port_the_client_addressed(
    headers: dict[str, str], signed: str
) -> None:
    queue = Queue(trusted_proxy=True)
    succeeded(queue.send("GET", POLLING, headers=headers, signed_url=signed + POLLING))
    if signed != ROOT_URL:
        refused(queue.send("GET", POLLING, headers=headers), 401, "AuthenticationFailed")


def test_forwarded_headers_are_ignored_without_a_trusted_proxy(queue: Queue) -> None:
    signed = f"https://tc.example.com:8443{POLLING}"
    refused(queue.send("GET", POLLING, headers=PROXIED, signed_url=signed), 401, "AuthenticationFailed")
    succeeded(queue.send("GET", POLLING, headers=PROXIED))


@pytest.mark.parametrize(
    ("header", "port"),
    [
        *product(["host"], ["", "x", "-1", "8o", "99999999999", "9" * 5000, "\u0661", "80 80", "8,0"]),
        *product(["x-forwarded-port", "x-forwarded-host"], ["x", "\u0661"]),
    ],
)
def test_an_invalid_port_is_refused(header: str, port: str) -> None:
    queue = Queue(trusted_proxy=header != "host", allowed_hosts=("*",))
    value = port if header == "x-forwarded-port" else f"queue.test:{port}"
    environ = {f"HTTP_{header.upper().replace('-', '_')}": value.encode().decode("latin-1")}
    answer = queue.http.get(POLLING, base_url=ROOT_URL, environ_overrides=environ)
    assert answer.status_code in (401, 403)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "[::1]:8080", "[::1]", "localhost", "QUEUE.test:80"])
def test_a_host_is_read_as_clients_sign_it(queue: Queue, host: str) -> None:
    header = hawk(ROOT, "GET", f"http://{host}{POLLING}", NOW)
    answer = queue.http.get(POLLING, base_url=f"http://{host}", headers={"Authorization": header})
    assert answer.status_code == 200


def test_a_request_without_a_host_is_refused(queue: Queue) -> None:
    answer = queue.http.get(POLLING, environ_overrides={"HTTP_HOST": ""})
    assert answer.status_code in (400, 401, 403)


def test_a_client_that_was_removed_from_the_settings_is_refused() -> None:
    gone = Credentials("gone", "the-access-token-of-a-removed-client")
    before = Queue(Client(gone.client_id, gone.access_token, ("*",)))
    succeeded(play(before, "pollTaskUrls", gone))
    refused(play(Queue(), "pollTaskUrls", gone), 401, "AuthenticationFailed")
