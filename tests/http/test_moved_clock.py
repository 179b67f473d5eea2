"""Each row of docs/explanation/clock.md: an advance changes it, or does not change it."""

import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.config.settings import Settings
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.services.event_feed import FedEvent
from tests.http.calls import (
    NOW,
    POOL,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    WORKER,
    WORKER_TYPE,
    Queue,
    artifact_body,
    claimed,
    hawk,
    refused,
    succeeded,
    task_body,
)
from tests.services.ports import event_of
from tests.system.processes import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "clock.md"
MOVED, NOT_MOVED = (
    re.findall(r"^\| (?!what \|)(?!---)(.+?) \|", part, re.MULTILINE)
    for part in PAGE.read_text().partition("## What does not")[::2]
)
ELSEWHERE = {  # no advance reaches them: they read a clock of their own
    "lines of the log": "legacy_queue/server/logs.py",
    "TLS certificates": "legacy_queue/server/tls.py",
    "what a test waits for": "legacy_queue/testing/legacy_queue.py",
}
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
CLAIM = Settings().claim_timeout

Check = Callable[[Queue], None]
CHECKS: dict[str, Check] = {}


def row(name: str) -> Callable[[Check], Check]:
    def decorate(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return decorate


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True, claim_work_wait=timedelta(seconds=1))


def advance(queue: Queue, duration: timedelta) -> None:
    body = f'{{"advance": "{duration // timedelta(milliseconds=1)}ms"}}'.encode()
    succeeded(queue.send("POST", "/control/v1/clock", body))


def runs(queue: Queue, task_id: str) -> list[tuple[str, str | None]]:
    status = succeeded(queue.call("status", taskId=task_id)).get_json()["status"]
    return [(run["state"], run.get("reasonResolved")) for run in status["runs"]]


def visible(queue: Queue) -> list[tuple[str, int]]:
    """The runs whose messages a poll receives now; the messages are invisible afterwards."""
    return [(task_id, run_id) for task_id, run_id, *_ in queue.messages()]


@pytest.mark.parametrize("name", [*MOVED, *NOT_MOVED])
def test_each_row_of_the_page_is_true(name: str, queue: Queue) -> None:
    if name not in ELSEWHERE:
        CHECKS[name](queue)


def test_each_check_has_a_row_on_the_page() -> None:
    assert {*CHECKS, *ELSEWHERE} == {*MOVED, *NOT_MOVED}
    for path in ELSEWHERE.values():
        source = (PAGE.parents[2] / path).read_text()
        assert re.search(r"datetime\.now|monotonic\(\)", source)
        assert "clock.now" not in source


@row("claims")
def claims(queue: Queue) -> None:
    task_id = queue.running(retries=0)
    advance(queue, CLAIM)
    assert runs(queue, task_id) == [("exception", "claim-expired")]


@row("retries")
def retries(queue: Queue) -> None:
    task_id = queue.running(retries=1)
    advance(queue, CLAIM)
    assert runs(queue, task_id) == [("exception", "claim-expired"), ("pending", None)]


@row("deadlines")
def deadlines(queue: Queue) -> None:
    task_id = queue.create()
    advance(queue, DAY)
    assert runs(queue, task_id) == [("exception", "deadline-exceeded")]


@row("dependencies and groups")
def dependencies(queue: Queue) -> None:
    group = slugid()
    first = queue.create(taskGroupId=group)
    later = format_time(NOW + 2 * DAY)
    second = queue.create(taskGroupId=group, dependencies=[first], requires="all-resolved", deadline=later)
    advance(queue, DAY)
    assert queue.state(second) == "pending"
    advance(queue, DAY)
    assert queue.published()[-1].exchange == "task-group-resolved"


@row("messages that are invisible")
def invisible(queue: Queue) -> None:
    task_id = queue.create()
    assert (visible(queue), visible(queue)) == ([(task_id, 0)], [])
    advance(queue, Settings().poll_visibility)
    assert visible(queue) == [(task_id, 0)]
    held = queue.claim(task_id)
    advance(queue, parse_time(succeeded(held).get_json()["takenUntil"]) - NOW)
    assert (task_id, 1) in visible(queue)


@row("messages that end")
def ending(queue: Queue) -> None:
    queue.create()
    advance(queue, DAY)
    assert visible(queue) == []


@row("quarantine of a worker")
def quarantine(queue: Queue) -> None:
    worker = {**POOL, **WORKER}
    call = {"tasks": 1, **WORKER}
    succeeded(queue.call("claimWork", call, **POOL))
    until = {"quarantineUntil": format_time(NOW + HOUR)}
    succeeded(queue.call("quarantineWorker", until, **worker))
    task_id = queue.create()
    refused(queue.claim(task_id), 409, "RequestConflict", "quarantined")
    advance(queue, HOUR)
    succeeded(queue.claim(task_id))


@row("`created` and `deadline` in createTask")
def created(queue: Queue) -> None:
    advance(queue, HOUR)
    refused(queue.call("createTask", task_body(), taskId=slugid()), 400, "InputError", "created")
    succeeded(queue.call("createTask", task_body(NOW + HOUR), taskId=slugid()))
    late = {"deadline": format_time(NOW + 5 * DAY + HOUR)}
    succeeded(queue.call("createTask", task_body(NOW + HOUR, **late), taskId=slugid()))


@row("`expires` of artifacts")
def expired_artifacts(queue: Queue) -> None:
    task_id = queue.running()
    succeeded(queue.artifact(task_id, "public/log", "error"))
    advance(queue, HOUR)
    assert queue.call("getArtifact", taskId=task_id, runId=0, name="public/log").status_code in (404, 410)
    advance(queue, 2 * DAY)
    assert queue.server.storage.artifacts.load(task_id, 0, "public/log") is None


@row("`expires` of tasks")
def expired_tasks(queue: Queue) -> None:
    task_id = queue.create(expires=format_time(NOW + 2 * DAY))
    advance(queue, 4 * DAY)
    refused(queue.call("status", taskId=task_id), 404, "ResourceNotFound")
    refused(queue.call("listTaskGroup", taskGroupId=task_id), 404, "ResourceNotFound")


@row("periodic jobs")
def periodic(queue: Queue) -> None:
    task_id = queue.create()
    assert visible(queue) == [(task_id, 0)]
    lost = WorkQueue(PROVISIONER, WORKER_TYPE, "lowest").name(queue.settings.queue_prefix)
    queue.server.storage.account.queue(lost).remove()
    advance(queue, HOUR)
    assert visible(queue) == [(task_id, 0)]


@row("times in answers and events")
def times(queue: Queue) -> None:
    advance(queue, HOUR)
    later = format_time(NOW + HOUR)
    task_id = queue.running(created=later)
    (run,) = succeeded(queue.call("status", taskId=task_id)).get_json()["status"]["runs"]
    assert (run["scheduled"], run["started"]) == (later, later)
    assert queue.published()[-1].payload["takenUntil"] == format_time(NOW + HOUR + CLAIM)
    assert queue.call("status", taskId=slugid()).get_json()["requestInfo"]["time"] == later


@row("times of calls")
def times_of_calls(queue: Queue) -> None:
    queue.messages()
    advance(queue, 3 * HOUR)
    queue.messages()
    queue.server.services.usage.flush()
    ((_, calls),) = queue.server.storage.usage.since(NOW - DAY, None, None)
    assert calls.last - calls.first == 3 * HOUR


@row("Hawk signatures")
def signatures(queue: Queue) -> None:
    advance(queue, DAY)
    path = "/control/v1/clock"
    succeeded(queue.send("GET", path))  # signed at the real time
    signed = {"Authorization": hawk(ROOT, "GET", ROOT_URL + path, NOW + DAY)}
    refused(queue.send("GET", path, headers=signed), 401, "AuthenticationFailed")


@row("temporary credentials")
def credentials(queue: Queue) -> None:
    task_id = queue.create()
    given = claimed(succeeded(queue.claim(task_id)))
    advance(queue, CLAIM + HOUR)
    reclaim: dict[str, Any] = {"taskId": task_id, "runId": 0, "credentials": given}
    refused(queue.call("reclaimTask", **reclaim), 409, "RequestConflict")
    queue.clock.advance(CLAIM + 15 * MINUTE)
    refused(queue.call("reclaimTask", **reclaim), 409, "RequestConflict")
    queue.clock.advance(16 * MINUTE)
    refused(queue.call("reclaimTask", **reclaim), 401, "AuthenticationFailed")


@row("signed URLs of queues")
def queue_urls(queue: Queue) -> None:
    advance(queue, DAY)
    urls = succeeded(queue.call("pollTaskUrls", **POOL)).get_json()
    assert parse_time(urls["expires"]) == NOW + Settings().sas_life
    advance(queue, DAY)
    target = urls["queues"][0]["signedPollUrl"].removeprefix(ROOT_URL)
    assert queue.send("GET", target, credentials=None).status_code == 200
    queue.clock.advance(HOUR)
    assert queue.send("GET", target, credentials=None).status_code == 403


@row("signed URLs of artifacts")
def artifact_urls(queue: Queue) -> None:
    queue = Queue(control=True, claim_timeout=4 * DAY)
    task_id = queue.running(deadline=format_time(NOW + 5 * DAY))
    body = artifact_body("s3", expires=format_time(NOW + 5 * DAY))
    where: dict[str, Any] = {"taskId": task_id, "runId": 0, "name": "public/log"}
    upload = succeeded(queue.call("createArtifact", body, **where)).get_json()
    advance(queue, DAY)
    again = succeeded(queue.call("createArtifact", body, **where)).get_json()
    for answer in (upload, again):
        assert NOW < parse_time(answer["expires"]) <= NOW + HOUR
        succeeded(queue.upload(answer["putUrl"], b"content"))
    location = succeeded(queue.call("getArtifact", **where)).headers["location"].removeprefix(ROOT_URL)
    advance(queue, DAY)
    assert queue.send("GET", location, credentials=None).data == b"content"
    queue.clock.advance(DAY)
    assert queue.send("GET", location, credentials=None).status_code == 403


@row("claimWork that waits for work")
def claim_work(queue: Queue) -> None:
    queue = Queue(control=True)  # it waits for 20 s; the real time stands still here
    task_id = queue.create()
    assert visible(queue) == [(task_id, 0)]
    answers: list[Any] = []
    services = queue.server.services

    def wait() -> None:
        answers.append(queue.call("claimWork", {"tasks": 1, **WORKER}, **POOL).get_json())

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert wait_until(lambda: services.pollers.waiting() == 1)
    advance(queue, MINUTE)
    assert waiting.is_alive()
    advance(queue, HOUR)
    waiting.join(60)
    assert [claim["status"]["taskId"] for claim in answers[0]["tasks"]] == [task_id]


@row("event streams")
def event_streams(queue: Queue) -> None:
    task_id = queue.create()
    stream = queue.server.services.event_feed.follow(None, "#", "")
    assert next(stream) is None
    advance(queue, DAY)
    item = next(stream)
    assert isinstance(item, FedEvent)
    event = event_of(item)
    assert (event.exchange, event.payload["status"]["taskId"]) == ("task-exception", task_id)


@row("`delay` of a fault")
def delay(queue: Queue) -> None:
    fault = b'{"endpoint": "status", "delay": "1ms", "times": 1}'
    succeeded(queue.send("POST", "/control/v1/faults", fault))
    succeeded(queue.send("POST", "/control/v1/clock", b'{"freeze": true}'))
    succeeded(queue.call("status", taskId=queue.create()))  # though the queue's time stands still


@row("times of requests")
def journal(queue: Queue) -> None:
    advance(queue, 2 * DAY)
    queue.messages()
    requests = succeeded(queue.send("GET", "/control/v1/requests")).get_json()["requests"]
    assert requests
    assert all(abs(datetime.now(UTC) - parse_time(request["time"])) < DAY for request in requests)
