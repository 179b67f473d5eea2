"""The request target as it was sent: routed by, signed, and never a crash."""

from typing import Any

import pytest

from tests.http.calls import ROOT, TASK_ID, Queue, hawk, refused, succeeded

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
    """No request changes its state."""
    return Queue()


@pytest.mark.parametrize("segment", STRANGE, ids=lambda text: ascii(text)[:30])
def test_a_strange_path_segment_is_a_400_or_404(queue: Queue, segment: str) -> None:
    plain = segment.isascii() and not set(segment) & set('<>{}"|\\;')  # mohawk signs these otherwise
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


@pytest.mark.parametrize("escape", ["%", "%2", "%zz", "%2g", "a%2F%"])
def test_an_incomplete_percent_escape_is_refused_in_a_path_and_a_query(queue: Queue, escape: str) -> None:
    for target in (
        f"/v1/task/{escape}/runs/0/claim",
        f"/v1/task/{TASK_ID}/runs/{escape}/claim",
        f"/v1/task/{TASK_ID}/runs/0/claim?limit={escape}",
    ):
        refused(queue.send("POST", target), 400, "InvalidRequestArguments", "percent escape")


ALMOST = [
    "/v1//ping", "/v1/ping/", "/v1/./ping", "/v1/task/../ping", "/v1/task//status", "/v1%2Fping",
    "/v1/ping%2F", "/v1/ping;x", "/v1/%70ing", "/V1/ping", "/api/queue/ping", "/api/queue/v2/ping", "/ping",
    f"/v1/task/{TASK_ID}/runs/0", f"/v1/task/{TASK_ID}/runs//claim",
]  # fmt: skip


@pytest.mark.parametrize("target", ALMOST)
def test_a_path_that_is_almost_a_route_is_not_served(queue: Queue, target: str) -> None:
    answer = queue.http.open("/", environ_overrides={"RAW_URI": target, "REQUEST_URI": target})
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize(("host", "status"), [("queue.test", 200), ("elsewhere:1234", 421), ("", 200)])
def test_in_the_absolute_form_the_host_is_that_of_the_target(host: str, status: int) -> None:
    queue = Queue(allowed_hosts=("queue.test",))
    for sent in ("queue.test", "elsewhere"):
        environ = {"RAW_URI": f"http://{host}/v1/ping", "HTTP_HOST": sent}
        answer = queue.http.open("/", environ_overrides=environ)
        assert answer.status_code == (status if host or sent == "queue.test" else 421)


def test_in_the_absolute_form_the_host_of_the_target_is_signed() -> None:
    queue, path = Queue(allowed_hosts=("*",)), "/v1/poll-task-url/provisioner/worker"
    signed = hawk(ROOT, "GET", f"http://queue.example.com{path}", queue.clock.now())
    environ = {"RAW_URI": f"http://queue.example.com{path}", "HTTP_HOST": "elsewhere"}
    succeeded(queue.http.open("/", environ_overrides={**environ, "HTTP_AUTHORIZATION": signed}))
    without_path = queue.http.open("/", environ_overrides={"RAW_URI": "http://queue.test?x=1"})
    assert without_path.status_code == 403, "it is that of the page"


@pytest.mark.parametrize("path", ["//v1/ping", "//api/queue/v1/ping", "///v1/ping", "//ready"])
def test_a_path_may_begin_with_more_than_one_slash(queue: Queue, path: str) -> None:
    succeeded(queue.send("GET", path, credentials=None))


@pytest.mark.parametrize(
    "run_id", ["-1", "01", "1001", "1e3", "0x1", "1.0", "+1", "%D9%A1", "00", "99999999999"]
)
def test_an_invalid_run_id_is_refused(queue: Queue, run_id: str) -> None:
    refused(queue.claim(TASK_ID, run_id), 400, "InvalidRequestArguments", "runId")


@pytest.mark.parametrize("name", ["taskId", "taskGroupId"])
@pytest.mark.parametrize("wrong", ["x", TASK_ID[:-1], TASK_ID + "A", TASK_ID[:-1] + "B", "A" * 22])
def test_an_invalid_id_is_refused(queue: Queue, name: str, wrong: str) -> None:
    params: dict[str, Any] = {name: wrong}
    answer = queue.call("task" if name == "taskId" else "listTaskGroup", **params)
    refused(answer, 400, "InvalidRequestArguments", name, repr(wrong), "must match")
    assert answer.get_json()["requestInfo"]["params"] == params


@pytest.mark.parametrize(
    "query",
    ["a=1", "a", "limit=1", "%ff=1", "a=%ff", "Bewit=x", "=x", "continuationToken=", "a=1&a=2", "%00"],
)
def test_an_unknown_query_parameter_is_refused(queue: Queue, query: str) -> None:
    refused(queue.send("GET", f"/v1/ping?{query}", credentials=None), 400, "InvalidRequestArguments")
