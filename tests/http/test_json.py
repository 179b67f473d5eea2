"""Bodies: strict JSON or a 400, and an accepted value comes back unchanged."""

import io
import json
import re
from itertools import product
from typing import Any

import pytest

from legacy_queue.domain.errors import InputValidationError, MalformedPayload
from legacy_queue.domain.ids import slugid
from legacy_queue.http.bodies import form, parse, validate
from tests.http.calls import (
    DECLARED,
    NOW,
    ROOT,
    ROOT_URL,
    TASK_ID,
    Queue,
    hawk,
    refused,
    scene,
    succeeded,
    task_body,
)

BODILESS = ("reclaimTask", "reportCompleted", "reportFailed", "cancelTask")
MAX_DEPTH = 200  # arrays and objects within each other, with that of the body


def with_payload(payload: str) -> bytes:
    """A task definition whose payload is this text."""
    return json.dumps(task_body(payload="@")).replace('"@"', payload).encode("utf-8", "surrogatepass")


def target_of(name: str) -> str:
    """A valid target of that endpoint."""
    params = scene(name).params
    return "/v1" + re.sub(r"<(\w+)>", lambda match: str(params[match[1]]), DECLARED[name].route)


def put(queue: Queue, task_id: str, body: bytes, content_type: str | None = "application/json") -> Any:
    return queue.send("PUT", f"/v1/task/{task_id}", body, content_type)


def malformed(body: bytes, *mentioned: str) -> None:
    """Check that the body is refused by an error that mentions all of these."""
    with pytest.raises(MalformedPayload) as refusal:
        parse(body, "application/json")
    assert [text for text in mentioned if text not in refusal.value.message] == []


NOT_JSON = [
    "NaN", "Infinity", "-Infinity", "nan", "1e400", "-1e400", "1E+999999", "01", "+1", "1.", ".5",
    "0x10", "1e",
    "12345678901234567890123", "-12345678901234567890123", str(2**63), "9" * 5000,
    r'"\ud800"', r'"\udc00\ud800"', r'"a\udfff"', '"\ud800"', r'"\x41"', '"\t"', '"\n"', '"\x00"', "'a'",
    '"a',
    "[1,]", "[,1]", "[1", "]", "{", "undefined", "None", "True", "tru", "//x\n1", "/**/1", "1 2",
    "\u00a01", "\ufeff1",
    "", '{"a":1,"a":1}', '{"a":1,"b":{"c":1,"c":2}}', '{"a":1,"\\u0061":2}', "{1:1}", '{"a"}', "{a:1}", "{,}",
    r'{"\ud800":1}',
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_JSON, ids=lambda text: ascii(text)[:40])
def test_a_body_that_is_not_strict_json_is_malformed(text: str) -> None:
    malformed(with_payload(f'{{"inside": {text}}}'), "body")


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf{}",
        b"\xef\xbb\xbf",
        '{"a": "\u00e4"}'.encode("latin-1"),
        "{}".encode("utf-16"),
        "{}".encode("utf-32-le"),
        b"\x00",
        b" ",
        b"{}{}",
        b"a=b",
        b"{} x",
        b"\xc0\x80",
    ],
)
def test_bytes_that_are_not_json_are_malformed(body: bytes) -> None:
    malformed(body, "body")


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993.0", "0.1e-400", "1e-99999999999999999999999", "0.12345678901234567890",
        "1.00000000000000000001", "9223372036854775807.0", "0." + "0" * 400 + "1", str(-(2**63) - 1),
    ],
)  # fmt: skip
def test_a_number_that_would_not_come_back_unchanged_is_malformed(text: str) -> None:
    malformed(with_payload(f'{{"a": {text}}}'), text[:40])


def test_a_doubled_key_is_named_even_among_many() -> None:
    malformed(b'{"retries": 1, "retries": 2}', "'retries'")
    many = ",".join(f'"k{number}":1' for number in range(80_000))
    malformed(f'{{{many},"k7":1}}'.encode(), "'k7'")


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, 256, 1000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_a_body_nested_more_deeply_than_the_limit_is_refused(
    queue: Queue, depth: int, opening: str, closing: str
) -> None:
    """The whole body may be this deep: one level is the definition's own, one the payload's."""
    many = depth // len(closing)
    body = with_payload(f'{{"a": {opening * many}1{closing * many}}}')
    is_accepted = many * len(closing) + 2 <= MAX_DEPTH
    answer = put(queue, TASK_ID, body)
    if is_accepted:
        succeeded(answer)
    else:
        refused(answer, 400, "MalformedPayload", f"{MAX_DEPTH} arrays and objects")


@pytest.mark.parametrize("nested", ["[]", '{"":1}', r'["\\", "\"[{"]'])
def test_a_body_has_at_most_20_000_arrays_and_objects_outside_of_its_strings(nested: str) -> None:
    def array(count: int) -> bytes:
        return f"[{','.join([nested] * count)}]".encode()

    parse(array(19_999), "application/json")
    malformed(array(20_000), "20000 in all")


def test_an_unusual_payload_comes_back_unchanged(queue: Queue) -> None:
    numbers = [0, -(2**63), 2**63 - 1, 0.1, -1e-7, 1e300, 5e-324, True, None]
    payload = {"": {"": []}, "numbers": numbers, "text": "\x00\x1f\x7f\u2028\ufffe\U0001f600"}
    succeeded(put(queue, TASK_ID, json.dumps(task_body(payload=payload)).encode()))
    assert json.dumps(queue.definition(TASK_ID)["payload"]) == json.dumps(payload)


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/jsonp",
        "application/json, text/plain",
        "",
        None,
    ],
)
def test_json_with_another_content_type_is_refused(queue: Queue, content_type: str | None) -> None:
    answer = put(queue, slugid(), json.dumps(task_body()).encode(), content_type)
    refused(answer, 400, "MalformedPayload", "content-type", "application/json")


def test_a_body_that_ends_too_early_is_refused(queue: Queue) -> None:
    body = json.dumps(task_body()).encode()
    for method, path in (("PUT", f"/v1/task/{TASK_ID}"), ("GET", "/v1/ping")):
        answer = queue.http.open(
            path,
            method=method,
            input_stream=io.BytesIO(body[:50]),
            environ_overrides={"CONTENT_LENGTH": "500"},
        )
        refused(answer, 400, "MalformedPayload", "content-length")
    refused(queue.call("task", taskId=TASK_ID), 404, "ResourceNotFound")


@pytest.mark.parametrize("length", [1024 * 1024, 1024 * 1024 + 1, 3 * 1024 * 1024])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_longer_than_the_limit_is_refused(queue: Queue, length: int, is_chunked: bool) -> None:
    """The limit is that of the bytes that came, whatever the caller says of them."""
    length_header = {"wsgi.input_terminated": True} if is_chunked else {"CONTENT_LENGTH": str(length)}
    target = f"/v1/task/{TASK_ID}"
    answer = queue.http.put(
        target,
        base_url=ROOT_URL,
        headers={"Authorization": hawk(ROOT, "PUT", ROOT_URL + target, NOW)},
        input_stream=io.BytesIO(b" " * length),
        content_type="application/json",
        environ_overrides=length_header,
    )
    if length > 1024 * 1024:
        refused(answer, 413, "InputTooLarge", str(1024 * 1024))
    else:
        refused(answer, 400, "MalformedPayload", "body")


@pytest.mark.parametrize(
    ("name", "body", "content_type"),
    [
        *product(["cancelTask"], [b"", b"{}", b" {} ", b"null"], [None, "application/json"]),
        *product(BODILESS, [b""], ["application/json; charset=utf-8"]),
    ],
)
def test_an_endpoint_without_a_body_accepts_an_empty_one(
    queue: Queue, name: str, body: bytes, content_type: str | None
) -> None:
    example = scene(name)
    example.prepare(queue)
    headers = {"Content-Type": content_type} if content_type and not body else {}
    content_type = content_type or ("application/json" if body else None)
    succeeded(queue.send("POST", target_of(name), body, content_type, headers=headers))


@pytest.mark.parametrize("name", ["createTask", "claimTask", "reportException"])
@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_missing_body_is_refused_where_one_is_needed(queue: Queue, name: str, body: bytes) -> None:
    example = scene(name)
    example.prepare(queue)
    answer = queue.send(DECLARED[name].method, target_of(name), body)
    refused(answer, 400, "InputValidationError", "null", DECLARED[name].input or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"priority": "urgent"}, 'body/priority is "urgent"'),
        ({"scopes": [*(f"s{number}" for number in range(8000)), 1]}, "a value behind the first 5000"),
    ],
)
def test_of_a_body_with_many_values_one_error_is_shown(change: Any, message: str) -> None:
    body = {**task_body(), "payload": {"inside": [[1]] * 10_000}, **change}
    with pytest.raises(InputValidationError, match=message):
        validate(body, "create-task-request", len(json.dumps(body)))


@pytest.mark.parametrize("body", [b"a=" + b"b" * 64 * 1024, b"a=b&" * 11])
def test_a_form_that_is_longer_than_any_of_ours_is_refused(body: bytes) -> None:
    assert form(b"token=a%41&token=b&reason=") == {"token": "b"}
    with pytest.raises(MalformedPayload, match="expected at most 10 fields in 65536"):
        form(body)
