"""A body must be strict JSON.

A task definition is accepted at the limit of each field and refused beyond it.
"""

import io
import json
from itertools import product
from typing import Any

import pytest

from legacy_queue.domain.errors import InputValidationError, MalformedPayload
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.times import format_time
from legacy_queue.http.request_bodies import form, parse, validate
from tests.http.calls import NOW, ROOT, ROOT_URL, TASK_ID, Queue, hawk, refused, succeeded, task_body

JSON = "application/json"
MAX_DEPTH = 200  # levels of nested arrays and objects, counting the body itself


def with_payload(payload: str) -> bytes:
    """A task definition whose payload is this text."""
    return json.dumps(task_body(payload="@")).replace('"@"', payload).encode("utf-8", "surrogatepass")


def put(queue: Queue, body: bytes, content_type: str | None = JSON) -> Any:
    return queue.send("PUT", f"/v1/task/{TASK_ID}", body, content_type)


def malformed(body: bytes, *mentioned: str) -> None:
    """Check that the body is refused by an error that mentions all of these."""
    with pytest.raises(MalformedPayload) as refusal:
        parse(body, JSON)
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


NOT_TEXT = [
    b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf{}", b"\xef\xbb\xbf", '{"a": "\u00e4"}'.encode("latin-1"),
    "{}".encode("utf-16"), "{}".encode("utf-32-le"), b"\x00", b" ", b"{}{}", b"a=b", b"{} x", b"\xc0\x80",
]  # fmt: skip


@pytest.mark.parametrize("body", NOT_TEXT)
def test_bytes_that_are_not_json_are_malformed(body: bytes) -> None:
    malformed(body, "body")


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993.0", "0.1e-400", "1e-99999999999999999999999", "0.12345678901234567890",
        "1.00000000000000000001", "9223372036854775807.0", "0." + "0" * 400 + "1", str(-(2**63) - 1),
    ],
)  # fmt: skip
def test_a_number_that_could_not_be_returned_unchanged_is_malformed(text: str) -> None:
    malformed(with_payload(f'{{"a": {text}}}'), text[:40])


def test_the_error_for_a_repeated_key_names_it_even_among_many_keys() -> None:
    malformed(b'{"retries": 1, "retries": 2}', "'retries'")
    many = ",".join(f'"k{number}":1' for number in range(80_000))
    malformed(f'{{{many},"k7":1}}'.encode(), "'k7'")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_a_body_nested_more_deeply_than_the_limit_is_malformed(opening: str, closing: str) -> None:
    def nested(depth: int) -> bytes:
        many = depth // len(closing)
        return f"{opening * many}1{closing * many}".encode()

    parse(nested(MAX_DEPTH), JSON)
    for depth in (MAX_DEPTH + 2, 256, 1000, 100_000):
        malformed(nested(depth), f"{MAX_DEPTH} levels of arrays and objects")


@pytest.mark.parametrize("nested", ["[]", '{"":1}', r'["\\", "\"[{"]'])
def test_a_body_can_have_at_most_20_000_arrays_and_objects_not_counting_brackets_in_strings(
    nested: str,
) -> None:
    def array(count: int) -> bytes:
        return f"[{','.join([nested] * count)}]".encode()

    parse(array(19_999), JSON)
    malformed(array(20_000), "20000 of them in all")


def test_an_unusual_payload_is_returned_unchanged(queue: Queue) -> None:
    numbers = [0, -(2**63), 2**63 - 1, 0.1, -1e-7, 1e300, 5e-324, True, None]
    payload = {"": {"": []}, "numbers": numbers, "text": "\x00\x1f\x7f\u2028\ufffe\U0001f600"}
    succeeded(put(queue, json.dumps(task_body(payload=payload)).encode()))
    assert json.dumps(queue.definition(TASK_ID)["payload"]) == json.dumps(payload)


def test_a_body_that_is_not_json_is_refused(queue: Queue) -> None:
    body = json.dumps(task_body()).encode()
    refused(put(queue, b"{"), 400, "MalformedPayload", "the body is not JSON")
    for content_type in (None, "text/plain", "application/jsonp", "application/json, text/plain"):
        refused(put(queue, body, content_type), 400, "MalformedPayload", "content-type")
    refused(queue.call("task", taskId=TASK_ID), 404, "ResourceNotFound")


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


def test_a_body_longer_than_the_limit_is_refused(queue: Queue) -> None:
    """The bytes that arrive count, whatever length the caller announces."""
    path, limit = f"/v1/task/{TASK_ID}", 1024 * 1024
    signature = hawk(ROOT, "PUT", ROOT_URL + path, NOW)
    refusals = {
        limit: (400, "MalformedPayload", "body"),
        limit + 1: (413, "InputTooLarge", str(limit)),
        3 * limit: (413, "InputTooLarge", str(limit)),
    }
    for length, says_length in product(refusals, (True, False)):
        said: Any = {"CONTENT_LENGTH": str(length)} if says_length else {"wsgi.input_terminated": True}
        answer = queue.http.put(
            path,
            base_url=ROOT_URL,
            headers={"Authorization": signature},
            input_stream=io.BytesIO(b" " * length),
            content_type=JSON,
            environ_overrides=said,
        )
        refused(answer, *refusals[length])


def test_an_endpoint_without_a_body_accepts_an_empty_one(queue: Queue) -> None:
    target = f"/v1/task/{queue.running()}/runs/0/reclaim"
    as_aiohttp = {"Content-Type": f"{JSON}; charset=utf-8"}
    succeeded(queue.send("POST", target, b"", headers=as_aiohttp))
    for body in (b"{}", b" {} ", b"null"):
        succeeded(queue.send("POST", target, body))


@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_missing_body_is_refused_if_the_endpoint_needs_one(queue: Queue, body: bytes) -> None:
    refused(put(queue, body), 400, "InputValidationError", "null", "create-task-request")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"priority": "urgent"}, 'body/priority is "urgent"'),
        ({"scopes": [*(f"s{number}" for number in range(8000)), 1]}, "a value after the first 5000"),
    ],
)
def test_the_error_for_a_body_with_many_values_names_one_mistake(change: Any, message: str) -> None:
    body = {**task_body(), "payload": {"inside": [[1]] * 10_000}, **change}
    with pytest.raises(InputValidationError, match=message):
        validate(body, "create-task-request", len(json.dumps(body)))


@pytest.mark.parametrize("body", [b"a=" + b"b" * 64 * 1024, b"a=b&" * 11])
def test_a_form_that_is_longer_than_the_pages_forms_is_refused(body: bytes) -> None:
    assert form(b"token=a%41&token=b&reason=") == {"token": "b"}
    with pytest.raises(MalformedPayload, match="expected at most 10 fields and 65536"):
        form(body)


# --- the fields of a task definition: docs/explanation/http-contract.md#task-definition.
# tests/domain/test_definition.py has the rules for times and for fields that depend on each other


IDENTIFIERS = ("provisionerId", "workerType", "schedulerId")
MANY_IDS = [f"{number:03}Q3g3rTZuH-bUFBpVoxw" for number in range(101)]
OTHER_ID = "eJzQ3g3rTZuH-bUFBpVoxw"


def metadata(**changes: Any) -> dict[str, Any]:
    changed = {**task_body()["metadata"], **changes}
    return {name: value for name, value in changed.items() if value is not None}


# at the limits
ACCEPTED: list[dict[str, Any]] = [
    *({name: value} for name in IDENTIFIERS for value in ("a", "Z9-_" * 9 + "38")),
    {"taskQueueId": f"{'p' * 38}/{'w' * 38}", "provisionerId": None, "workerType": None},
    *({"projectId": project} for project in ("none", "a/project", "p" * 500)),
    {"metadata": metadata(name="n" * 255, description="d" * 32768, source="http://h/" + "s" * 4087)},
    {"metadata": metadata(name="\u00e4\U0001f600\u0000", owner="first.last+tag@sub.example.com")},
    {"tags": {"a": "t" * 4096, "": "", "\u00e4": "\u2028"}},
    {"routes": [f"route.{number}" for number in range(64)]},
    {"routes": ["r" * 249, "a route with ~ and spaces"]},
    *({"retries": retries} for retries in (0, 49)),
    *({"priority": priority} for priority in (*PRIORITIES, "normal")),
    {"scopes": ["a", "a*", "*", "a**b", " ~"]},
    *({"requires": requires} for requires in ("all-completed", "all-resolved")),
    {"extra": {"anything": [None, {}, 1.5]}},
    *({"expires": expires} for expires in (format_time(NOW), "9999-12-31T23:59:59.999Z")),
]

# values beyond the limits, for properties of the task and of its metadata
NOT_VALID: dict[str, list[Any]] = {
    "schedulerId": ["", "x" * 39, "a b", "\u00e4", "a\n", 1],
    "provisionerId": ["a b"],
    "workerType": ["a b"],
    "taskGroupId": ["", OTHER_ID[:-1], OTHER_ID + "A", OTHER_ID[:-1] + "B", 7],
    "taskQueueId": ["", "a", "a/", "a/b/c", "a%2Fb", "a/b\n", 1],
    "projectId": ["", "a b", "p" * 501, 1],
    "metadata": [[], "x"],
    "tags": [{"a": "t" * 4097}, {"a": 1}, ["a"]],
    "routes": [[str(number) for number in range(65)], ["r", "r"], ["r" * 250], [""], ["\u00e4"], "r"],
    "retries": [-1, 50, 1.5, "5", True, 2**40],
    "priority": ["urgent", "", "High", 4],
    "scopes": [[""], ["\u00e4"], ["a\nb"], ["a\n"], ["a", 1], "a"],
    "dependencies": [["x"], [OTHER_ID, OTHER_ID]],
    "requires": ["any"],
    "payload": [[], "x", 1],
    "extra": [[]],
    "created": ["", "today", "2018-03-05", "2018-03-05T05:06:07", "2018-13-05T05:06:07Z", 15201],
    "deadline": ["today"],
    "expires": ["today"],
    "unknown": [1],
    "taskId": [OTHER_ID],
}
NOT_METADATA: dict[str, list[Any]] = {
    "name": ["n" * 256, 1],
    "description": ["d" * 32769],
    "owner": ["nobody", "@", "o" * 250 + "@e.com"],
    "source": ["ftp://h/", "https://", "http://h/ a", "http://h/" + "s" * 4088],
    "unknown": ["x"],
}
REQUIRED = [name for name in task_body() if name not in ("provisionerId", "workerType")]

REFUSED: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: value}) for name, values in NOT_VALID.items() for value in values),
    *(
        (name, {"metadata": metadata(**{name: value})})
        for name, values in NOT_METADATA.items()
        for value in (*values, None)
        if value or name != "unknown"
    ),
    *((f"the property {name} is missing", {name: None}) for name in REQUIRED),
]


def checked(changes: dict[str, Any]) -> None:
    body = task_body(**changes)
    validate(body, "create-task-request", len(json.dumps(body)))


def test_a_definition_at_each_limit_is_accepted() -> None:
    for changes in ACCEPTED:
        checked(changes)


@pytest.mark.parametrize(("named", "changes"), REFUSED, ids=lambda case: json.dumps(case)[:60])
def test_a_definition_beyond_a_limit_is_refused(named: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InputValidationError, match=named):
        checked(changes)


@pytest.mark.parametrize(
    ("changes", "code", "mentioned"),
    [
        ({"retries": -1}, "InputValidationError", "body/retries"),
        ({"deadline": "2018-03-05T23:59:60Z"}, "InputError", "deadline"),
        ({"dependencies": MANY_IDS}, "InputError", "101 dependencies: expected at most 100"),
        ({"dependencies": MANY_IDS[:100]}, "InputError", "and 90 more"),
    ],
    ids=str,
)
def test_a_refused_definition_creates_no_task_and_no_message(
    queue: Queue, changes: dict[str, Any], code: str, mentioned: str
) -> None:
    refused(queue.call("createTask", task_body(**changes), taskId=OTHER_ID), 400, code, mentioned)
    refused(queue.call("task", taskId=OTHER_ID), 404, "ResourceNotFound")
    assert queue.messages() == []


def test_creating_a_task_again_with_another_definition_is_a_conflict(queue: Queue) -> None:
    task_id = queue.create()
    changes: dict[str, Any] = {"retries": 4, "metadata": metadata(name="another name")}
    before = queue.definition(task_id)
    answer = queue.call("createTask", task_body(**changes), taskId=task_id)
    message = refused(answer, 409, "RequestConflict", task_id, *changes)
    both = json.loads(message.partition("\n\n")[2])
    assert both == {"existing": before, "given": {**before, **changes, "expires": both["given"]["expires"]}}
    assert queue.definition(task_id) == before
