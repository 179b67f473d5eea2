"""The request target as it was sent: routed by, signed, and never a crash."""

from typing import Any

import pytest

from tests.http.calls import DECLARED, ROOT, TASK_ID, Queue, hawk, refused, scene, succeeded

STRANGE = [
    "%00", "a%00b", "%2F", "a%2Fb", "%2f..%2f", "%2E%2E", "..%2F..%2Fping", "%ff", "%ff%fe", "%c0%af",
    "%ed%a0%80",
    "%E4", "%", "%2", "%zz", "%25", "%2525", "%3F", "%23", "+", "~", "*", "@", "a;b=c", "a,b",
    "%0d%0aX:y", "%20", "%7F",
    "\u00ff\u0080", "\u00c3\u00a4", "'", '"', "<taskId>", "{{x}}", "\\", "|", "a:b", "A" * 4000, "%41" * 1300,
    TASK_ID + "%0A", TASK_ID + "%00", TASK_ID + "%20", f"%20{TASK_ID}",
]  # fmt: skip


@pytest.mark.parametrize("segment", STRANGE, ids=lambda text: ascii(text)[:30])
def test_a_strange_path_segment_is_a_400_or_404(queue: Queue, segment: str) -> None:
    plain = segment.isascii() and not set(segment) & set('<>{}"|\\;')  # mohawk signs these otherwise
    credentials, prefix = ROOT if plain else None, "/v1"
    for method, target in [
        ("GET", f"{prefix}/task/{segment}"),
        ("GET", f"{prefix}/task/{segment}/status"),
        ("PUT", f"{prefix}/task/{segment}"),
        ("POST", f"{prefix}/task/{TASK_ID}/runs/{segment}/claim"),
        ("GET", f"{prefix}/poll-task-url/{segment}/w"),
        ("GET", f"{prefix}/pending/p/{segment}"),
        ("GET", f"{prefix}/{segment}"),
        ("GET", f"/{segment}"),
        ("GET", f"/schemas/queue/v1/{segment}.json"),
    ]:
        answer = queue.send(method, target, credentials=credentials)
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


@pytest.mark.parametrize(
    "target",
    [
        "/v1//ping",
        "/v1/ping/",
        "/v1/./ping",
        "/v1/task/../ping",
        "/v1/task//status",
        "/v1%2Fping",
        "/v1/ping%2F",
        "/v1/ping;x",
        "/v1/%70ing",
        "/V1/ping",
        "/api/queue/ping",
        "/api/queue/v2/ping",
        "/ping",
        f"/v1/task/{TASK_ID}/runs/0",
        f"/v1/task/{TASK_ID}/runs//claim",
    ],
)
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


def test_the_absolute_form_may_have_no_path(queue: Queue) -> None:
    answer = queue.http.open("/", environ_overrides={"RAW_URI": "http://queue.test?x=1"})
    assert answer.status_code == 403  # of the page, and no 421 of an unknown host


def test_in_the_absolute_form_the_host_of_the_target_is_signed() -> None:
    queue = Queue(allowed_hosts=("*",))
    path = "/v1/poll-task-url/provisioner/worker"
    signed = hawk(ROOT, "GET", f"http://queue.example.com{path}", queue.clock.now())
    environ = {"RAW_URI": f"http://queue.example.com{path}", "HTTP_HOST": "elsewhere"}
    answer = queue.http.open("/", environ_overrides={**environ, "HTTP_AUTHORIZATION": signed})
    succeeded(answer)


@pytest.mark.parametrize("path", ["//v1/ping", "//api/queue/v1/ping", "///v1/ping", "//ready"])
def test_a_path_may_begin_with_more_than_one_slash(queue: Queue, path: str) -> None:
    succeeded(queue.send("GET", path, credentials=None))


@pytest.mark.parametrize(
    "run_id", ["-1", "01", "1001", "1e3", "0x1", "1.0", "+1", "%D9%A1", "00", "99999999999"]
)
def test_an_invalid_run_id_is_refused(queue: Queue, run_id: str) -> None:
    queue.create(TASK_ID)
    refused(queue.claim(TASK_ID, run_id), 400, "InvalidRequestArguments", "runId")


NO_TASK_IDS = ("x", TASK_ID[:-1], TASK_ID + "A", TASK_ID[:-1] + "B", "A" * 22, TASK_ID.swapcase())
OF_ONE_ID = [name for name in DECLARED if [*scene(name).params] in (["taskId"], ["taskGroupId"])]


@pytest.mark.parametrize(
    ("name", "task_id"),
    [*(("task", task_id) for task_id in NO_TASK_IDS[:-1]), *((name, NO_TASK_IDS[-1]) for name in OF_ONE_ID)],
)
def test_an_invalid_task_id_is_refused(queue: Queue, name: str, task_id: str) -> None:
    (parameter,) = scene(name).params
    params: dict[str, Any] = {parameter: task_id}
    answer = queue.call(name, **params)
    refused(answer, 400, "InvalidRequestArguments", parameter, repr(task_id), "must match")
    assert answer.get_json()["requestInfo"]["params"] == {parameter: task_id}


@pytest.mark.parametrize(
    "query",
    ["a=1", "a", "limit=1", "%ff=1", "a=%ff", "Bewit=x", "=x", "continuationToken=", "a=1&a=2", "%00"],
)
def test_an_unknown_query_parameter_is_refused(queue: Queue, query: str) -> None:
    refused(queue.send("GET", f"/v1/ping?{query}", credentials=None), 400, "InvalidRequestArguments")
