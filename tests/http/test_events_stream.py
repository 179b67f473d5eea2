"""``GET /events``: which events a stream has, where it begins, and who can follow it."""

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import Client, TestResponse

from legacy_queue.domain.events import EXCHANGES, group_resolved
from legacy_queue.queue_client import parse_events
from legacy_queue.services.events.event_buffer import BufferedEvent
from legacy_queue.services.events.event_streams import EventStreams, Following
from tests.http.calls import (
    GROUP_ID,
    NOW,
    ROOT_URL,
    TASK_ID,
    TESTED,
    Queue,
    bare_client,
    hawk,
    holding,
    refused,
    succeeded,
)
from tests.http.test_ui import signed_in
from tests.memory_server import FakeClock

EVENT = group_resolved(GROUP_ID, "a-scheduler")
BUFFERED = BufferedEvent("1", NOW, EVENT.exchange, EVENT.routing_key, EVENT.routes, b'{"a":1}')


def ask(
    http: Client, query: str = "", method: str = "GET", path: str = "/events", **headers: str
) -> TestResponse:
    return http.open(
        path + query,
        method=method,
        base_url=ROOT_URL,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        environ_overrides={"RAW_URI": path + query, "REMOTE_ADDR": "127.0.0.1"},
    )


def frames(answer: TestResponse) -> Iterator[dict[str, str]]:
    """The fields of each frame after the first, which has ``retry``. A comment has an empty name."""
    assert (answer.status_code, answer.content_type) == (200, "text/event-stream")
    chunks = (chunk.decode() for chunk in answer.iter_encoded())
    assert next(chunks) == "retry: 2000\n\n"
    for chunk in chunks:
        [frame] = parse_events(chunk.encode().splitlines())
        yield frame


def exchanges_of(answer: TestResponse, count: int) -> list[str]:
    return [frame["event"] for frame in islice(frames(answer), count)]


def test_each_published_event_is_in_the_stream(queue: Queue) -> None:
    stream = frames(ask(queue.http))
    queue.running(TASK_ID, routes=["index.a.b", "tc-treeherder.v2"])
    published = queue.published()
    assert [event.exchange for event in published] == ["task-defined", "task-pending", "task-running"]
    for event, frame in zip(published, stream, strict=False):
        assert set(frame) == {"id", "event", "data"}
        assert frame["event"] == event.exchange
        assert json.loads(frame["data"]) == {
            "exchange": f"exchange/taskcluster-queue/v1/{event.exchange}",
            "routingKey": event.routing_key,
            "routes": ["index.a.b", "tc-treeherder.v2"],
            "payload": event.payload,
        }


def test_with_follow_false_the_answer_ends_after_the_events_so_far(queue: Queue) -> None:
    queue.create(TASK_ID)
    query = f"?follow=false&lastEventId={'0' * 16}"
    gap, *events = frames(ask(queue.http, query))
    assert gap == {"event": "begins-anew", "data": '{"gap":true}'}
    assert [event["event"] for event in events] == ["task-defined", "task-pending"]


def test_a_stream_can_resume_after_a_given_event(queue: Queue) -> None:
    stream = frames(ask(queue.http))
    queue.running(TASK_ID)
    succeeded(queue.call("cancelTask", taskId=TASK_ID))
    first, second, third, fourth = (next(stream) for _ in range(4))
    assert first["id"] < second["id"] < third["id"] < fourth["id"]
    of_second = {"Last_Event_ID": second["id"]}
    for resumed in (
        ask(queue.http, **of_second),
        ask(queue.http, f"?lastEventId={second['id']}"),
        # a browser's EventSource reconnects to the same URL, so the id in the header is newer
        ask(queue.http, f"?lastEventId={first['id']}", **of_second),
    ):
        assert [*islice(frames(resumed), 2)] == [third, fourth]
        resumed.close()


def test_an_unknown_exchange_is_refused(queue: Queue) -> None:
    for name in ("task", "Task-Pending", "task-pending ", "exchange/task-pending", "%2A", "#"):
        answer = ask(queue.http, f"?exchange={quote(name)}")
        refused(answer, 400, "InvalidRequestArguments", repr(name), *EXCHANGES)


class Streams(EventStreams):
    """One stream with these items, one after the other. If an item is a function, the stream calls it."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def follow(self, *_: Any) -> Following:
        for item in self._items:
            yield item() if callable(item) else item
        raise AssertionError("the stream asked for more")


def serving(streams: Streams, clock: FakeClock | None = None) -> Client:
    services = Queue().server.services
    vars(services).update({"event_streams": streams, "clock": clock or FakeClock(NOW)})
    return bare_client(services)


def test_a_head_request_gets_the_same_headers_and_follows_nothing() -> None:
    answer = ask(serving(Streams()), method="HEAD")
    followed = ask(serving(Streams(BUFFERED)))
    assert (answer.status_code, answer.data) == (200, b"")
    for response in (answer, followed):
        del response.headers["x-request-id"]
    assert answer.headers == followed.headers
    followed.close()


def test_a_stream_is_never_silent_for_more_than_fifteen_seconds() -> None:
    clock = FakeClock(NOW)

    def later(seconds: float, event: BufferedEvent | None = None) -> Any:
        def item() -> BufferedEvent | None:
            clock.advance(timedelta(seconds=seconds))
            return event

        return item

    streams = Streams(
        later(0), later(14), later(1), later(14), later(0.999, BUFFERED), later(14.9), later(0.1)
    )
    stream = frames(ask(serving(streams, clock)))
    received = [next(stream) for _ in range(3)]
    assert [frame.get("event", frame.get("")) for frame in received] == [
        "keep-alive",
        EVENT.exchange,
        "keep-alive",
    ]


@pytest.mark.parametrize("path", ["/events", "/inspect/v1/events"])
@pytest.mark.parametrize("scope", ["queue:events", "queue:inspect", "queue:get-task:*"])
def test_if_the_anonymous_role_has_no_scopes_a_stream_needs_a_scope(scope: str, path: str) -> None:
    queue = holding(scope, anonymous_scopes=())
    query = "?follow=false"
    for more in ("", "&exchange=unknown"):
        refused(ask(queue.http, query + more, path=path), 403, "InsufficientScopes", "queue:inspect")
    signed = hawk(TESTED, "GET", f"{ROOT_URL}{path}{query}", NOW)
    is_allowed = scope == "queue:inspect" or (scope, path) == ("queue:events", "/events")
    assert ask(queue.http, query, path=path, Authorization=signed).status_code == (200 if is_allowed else 403)


def test_a_web_page_follows_the_events_of_this_process_with_its_cookie() -> None:
    """This holds even with a broker, where ``/events`` has the broker's events."""
    queue = Queue(amqp_url="amqp://guest:a-password@127.0.0.1:1", project="ours")
    queue.server.services.event_buffer.append([EVENT])
    headers = {"Cookie": signed_in(queue), "Last_Event_ID": "0" * 16}
    browser = Client(queue.server.app, use_cookies=False)
    answer = ask(browser, "?follow=false", path="/inspect/v1/events", **headers)
    assert exchanges_of(answer, 9) == ["begins-anew", EVENT.exchange]
    names = [f"exchange/ours/v1/{name}" for name in EXCHANGES]
    message = refused(ask(queue.http), 404, "ResourceNotFound", *names)
    assert "a-password" not in message
