"""``GET /events``: which events are in a stream, where it begins and how it ends."""

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from threading import Event as Flag
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import Client, TestResponse

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EXCHANGES, group_resolved
from legacy_queue.ports import BrokerAway
from legacy_queue.services.events.event_feed import EventFeed, FedEvent
from legacy_queue.testing.queue_http import parse_events
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
FED = FedEvent("1", NOW, EVENT.exchange, EVENT.routing_key, EVENT.routes, b'{"a":1}')


def ask(http: Client, query: str = "", method: str = "GET", **headers: str) -> TestResponse:
    return http.open(
        f"/events{query}",
        method=method,
        base_url=ROOT_URL,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        environ_overrides={"RAW_URI": f"/events{query}", "REMOTE_ADDR": "127.0.0.1"},
    )


def frames(answer: TestResponse) -> Iterator[dict[str, str]]:
    """The fields of each frame after the first, which has ``retry``; a comment's name is empty."""
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


def test_with_follow_false_the_answer_ends_after_the_kept_events(queue: Queue) -> None:
    queue.create(TASK_ID)
    query = f"?follow=false&lastEventId={'0' * 16}"
    assert exchanges_of(ask(queue.http, query), 9) == ["begins-anew", "task-defined", "task-pending"]


def test_a_stream_resumes_after_an_event(queue: Queue) -> None:
    stream = frames(ask(queue.http))
    queue.running(TASK_ID)
    succeeded(queue.call("cancelTask", taskId=TASK_ID))
    first, second, third, fourth = (next(stream) for _ in range(4))
    assert first["id"] < second["id"] < third["id"] < fourth["id"]
    of_second = {"Last_Event_ID": second["id"]}
    for resumed in (
        ask(queue.http, **of_second),
        ask(queue.http, f"?lastEventId={second['id']}"),
        # a browser's EventSource comes back to the same URL: the header is the newer
        ask(queue.http, f"?lastEventId={first['id']}", **of_second),
    ):
        assert [*islice(frames(resumed), 2)] == [third, fourth]
        resumed.close()


def test_an_unknown_exchange_is_refused(queue: Queue) -> None:
    for name in ("task", "Task-Pending", "task-pending ", "exchange/task-pending", "%2A", "#"):
        answer = ask(queue.http, f"?exchange={quote(name)}")
        refused(answer, 400, "InvalidRequestArguments", repr(name), *EXCHANGES)


class Feed(EventFeed):
    """Yields the items of a test in turn: an exception is raised, a function is called for its item.

    It stands for the feed of a process or of a broker, whose own tests are in tests/services.
    """

    def __init__(self, *items: Any) -> None:
        self._items = items

    def follow(self, *_: Any, **_more: Any) -> Iterator[Any]:
        if self._items and isinstance(self._items[0], Exception):
            raise self._items[0]
        return self._next_items()

    def _next_items(self) -> Iterator[Any]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item() if callable(item) else item
        raise AssertionError("the stream asked for more")


def serving(feed: Feed, clock: FakeClock | None = None, stopping: Flag | None = None) -> Client:
    fakes: Any = {"event_feed": feed, "clock": clock or FakeClock(NOW), "stopping": stopping or Flag()}
    services = Queue().server.services
    vars(services).update(fakes)
    return bare_client(services)


def test_a_head_request_gets_the_same_headers_and_follows_nothing() -> None:
    answer = ask(serving(Feed(AssertionError("followed"))), method="HEAD")
    followed = ask(serving(Feed(FED)))
    assert (answer.status_code, answer.data) == (200, b"")
    for response in (answer, followed):
        del response.headers["x-request-id"]
    assert answer.headers == followed.headers
    followed.close()


def test_a_stream_is_never_silent_for_more_than_fifteen_seconds() -> None:
    clock = FakeClock(NOW)

    def later(seconds: float, event: FedEvent | None = None) -> Any:
        def item() -> FedEvent | None:
            clock.advance(timedelta(seconds=seconds))
            return event

        return item

    feed = Feed(later(0), later(14), later(1), later(14), later(0.999, FED), later(14.9), later(0.1))
    stream = frames(ask(serving(feed, clock)))
    received = [next(stream) for _ in range(3)]
    assert [frame.get("event", frame.get("")) for frame in received] == [
        "keep-alive",
        EVENT.exchange,
        "keep-alive",
    ]


def test_a_stream_ends_when_the_server_stops() -> None:
    stopping = Flag()
    http = serving(Feed(None, FED, stopping.set), stopping=stopping)
    assert exchanges_of(ask(http), 9) == [EVENT.exchange]


@pytest.mark.parametrize("away", [BrokerAway("away"), ServiceUnavailable("away")], ids=["broker", "storage"])
def test_a_stream_cannot_begin_while_the_broker_is_away(away: Exception) -> None:
    answer = ask(serving(Feed(away)))
    refused(answer, 503, "ServiceUnavailable", "away")
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize(
    ("scope", "status"), [("queue:events", 200), ("queue:inspect", 200), ("queue:get-task:*", 403)]
)
def test_without_the_anonymous_role_a_stream_needs_a_scope(scope: str, status: int) -> None:
    queue = holding(scope, anonymous_scopes=())
    query = "?follow=false"
    refused(ask(queue.http, query), 403, "InsufficientScopes", "queue:events")
    signed = hawk(TESTED, "GET", f"{ROOT_URL}/events{query}", NOW)
    assert ask(queue.http, query, Authorization=signed).status_code == status
    if scope == "queue:inspect":  # a page follows with its cookie
        browser = Client(queue.server.app, use_cookies=False)
        assert ask(browser, query, Cookie=signed_in(queue, TESTED)).status_code == 200
