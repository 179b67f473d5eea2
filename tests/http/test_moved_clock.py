"""What an advance of the clock changes, and what keeps the real time. Source: docs/explanation/clock.md."""

from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.config.settings import Settings
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time, parse_time
from tests.http.calls import (
    NOW,
    POOL,
    ROOT,
    ROOT_URL,
    Queue,
    hawk,
    refused,
    succeeded,
    task_body,
)

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True, claim_work_wait=timedelta(seconds=1))


def advance(queue: Queue, duration: timedelta) -> None:
    body = f'{{"advance": "{duration // timedelta(milliseconds=1)}ms"}}'.encode()
    succeeded(queue.send("POST", "/control/v1/clock", body))


def visible(queue: Queue) -> list[tuple[str, int]]:
    """The runs whose messages a poll receives now; the messages are invisible afterwards."""
    return [message.run for message in queue.messages()]


def test_messages_are_visible_again_after_an_advance(queue: Queue) -> None:
    task_id = queue.create()
    assert (visible(queue), visible(queue)) == ([(task_id, 0)], [])
    advance(queue, Settings().poll_visibility)
    assert visible(queue) == [(task_id, 0)]
    claim = succeeded(queue.claim(task_id)).get_json()
    advance(queue, parse_time(claim["takenUntil"]) - NOW)
    assert (task_id, 1) in visible(queue)


def test_created_and_deadline_are_checked_by_the_moved_clock(queue: Queue) -> None:
    advance(queue, HOUR)
    refused(queue.call("createTask", task_body(), taskId=slugid()), 400, "InputError", "created")
    succeeded(queue.call("createTask", task_body(NOW + HOUR), taskId=slugid()))
    late = {"deadline": format_time(NOW + 5 * DAY + HOUR)}
    succeeded(queue.call("createTask", task_body(NOW + HOUR, **late), taskId=slugid()))


def test_hawk_signatures_keep_the_real_time(queue: Queue) -> None:
    advance(queue, DAY)
    path = "/control/v1/clock"
    succeeded(queue.send("GET", path))  # signed at the real time
    signed = {"Authorization": hawk(ROOT, "GET", ROOT_URL + path, NOW + DAY)}
    refused(queue.send("GET", path, headers=signed), 401, "AuthenticationFailed")


def test_signed_urls_of_queues_keep_the_real_time(queue: Queue) -> None:
    advance(queue, DAY)
    assert parse_time(queue.ask("pollTaskUrls", **POOL)["expires"]) == NOW + Settings().sas_life
    target = queue.poll_target()
    advance(queue, DAY)
    assert queue.send("GET", target, credentials=None).status_code == 200
    queue.clock.advance(HOUR)
    assert queue.send("GET", target, credentials=None).status_code == 403


def test_signed_urls_of_artifacts_keep_the_real_time(queue: Queue) -> None:
    queue = Queue(control=True, claim_timeout=4 * DAY)
    late = format_time(NOW + 5 * DAY)
    task_id = queue.running(deadline=late)
    where: dict[str, Any] = {"taskId": task_id, "runId": 0, "name": "public/log"}
    for _ in range(2):
        answer = succeeded(
            queue.artifact(task_id, where["name"], expires=format_time(NOW + 5 * DAY))
        ).get_json()
        assert NOW < parse_time(answer["expires"]) <= NOW + HOUR
        succeeded(queue.upload(answer["putUrl"], b"content"))
        advance(queue, DAY)
    location = succeeded(queue.call("getArtifact", **where)).headers["location"].removeprefix(ROOT_URL)
    assert queue.send("GET", location, credentials=None).data == b"content"
    queue.clock.advance(DAY)
    assert queue.send("GET", location, credentials=None).status_code == 403
