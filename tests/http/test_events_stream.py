"""``GET /events``: which events are in a stream, where it begins and how it ends."""

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from threading import Event as Flag
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import Client, TestResponse

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.authentication import Client as ConfiguredClient
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EXCHANGES, group_resolved
from legacy_queue.domain.scopes import Roles
from legacy_queue.http.app import create_app
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.ports import BrokerAway
from legacy_queue.services.event_feed import FedEvent
from legacy_queue.services.fault_registry import FaultRegistry
from legacy_queue.testing.server_sent_events import parse_events
from tests.http.calls import (
    GROUP_ID,
    NOW,
    ROOT,
    ROOT_URL,
    TASK_ID,
    Credentials,
    Queue,
    hawk,
    refused,
    succeeded,
)
from tests.memory_server import FakeClock

OTHER_ID = "OtherAAAQ3GP5tDKTRPnTA"
SECOND = timedelta(seconds=1)
EVENT = group_resolved(GROUP_ID, "a-scheduler")
FED = FedEvent("1", EVENT.exchange, EVENT.routing_key, EVENT.routes, b'{"a":1}')


def ask(
    http: Client, query: str = "", headers: dict[str, str] | None = None, method: str = "GET"
) -> TestResponse:
    target = f"/events{query}"
    return http.open(
        "/events",
        method=method,
        base_url=ROOT_URL,
        query_string=query.removeprefix("?"),
        headers=headers,
        environ_overrides={"RAW_URI": target, "REQUEST_URI": target, "REMOTE_ADDR": "127.0.0.1"},
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


def test_a_stream_tells_proxies_not_to_buffer_it(queue: Queue) -> None:
    headers = ask(queue.http).headers
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers


@pytest.mark.parametrize("way", ["header", "query", "header and query"])
def test_a_stream_resumes_after_an_event(queue: Queue, way: str) -> None:
    stream = frames(ask(queue.http))
    queue.running(TASK_ID)
    succeeded(queue.call("cancelTask", taskId=TASK_ID))
    first, second, third, fourth = (next(stream) for _ in range(4))
    assert first["id"] < second["id"] < third["id"] < fourth["id"]
    query, headers = {
        "header": ("", {"Last-Event-ID": second["id"]}),
        "query": (f"?lastEventId={second['id']}", {}),
        # a browser's EventSource comes back to the same URL: the header is the newer
        "header and query": (f"?lastEventId={first['id']}", {"Last-Event-ID": second["id"]}),
    }[way]
    resumed = frames(ask(queue.http, query, headers))
    assert [next(resumed), next(resumed)] == [third, fourth]


@pytest.mark.parametrize("bad", ["x", "0", "-1", "1" * 15, "1" * 17, "1" * 300, "\u00e4", "a b", "null"])
def test_an_invalid_event_id_is_refused(queue: Queue, bad: str) -> None:
    refused(
        ask(queue.http, f"?lastEventId={quote(bad)}"),
        400,
        "InvalidRequestArguments",
        "lastEventId is",
    )
    answer = ask(queue.http, "", {"Last-Event-ID": bad})
    refused(answer, 400, "InvalidRequestArguments", "lastEventId is")


@pytest.mark.parametrize(
    "exchange",
    [
        *(name for name in EXCHANGES if name != "artifact-created"),
        "exchange/taskcluster-queue/v1/task-running",
    ],
)
def test_one_exchange_is_followed(queue: Queue, exchange: str) -> None:
    answer = ask(queue.http, f"?exchange={quote(exchange, safe='')}")
    for report in ("reportCompleted", "reportFailed"):
        succeeded(queue.call(report, taskId=queue.running(), runId=0))
    task_id = queue.create()
    succeeded(queue.call("changeTaskGroupPriority", {"newPriority": "high"}, taskGroupId=task_id))
    succeeded(queue.call("sealTaskGroup", taskGroupId=task_id))
    queue.canceled()
    queue.server.services.event_feed.append([EVENT])
    assert exchanges_of(answer, 1) == [exchange.rpartition("/")[2]]


def test_the_exchanges_of_another_project_are_followed() -> None:
    queue = Queue(project="another")
    stream = frames(ask(queue.http, "?exchange=exchange/another/v1/task-pending"))
    queue.create(TASK_ID)
    assert json.loads(next(stream)["data"])["exchange"] == "exchange/another/v1/task-pending"
    answer = ask(queue.http, "?exchange=exchange/taskcluster-queue/v1/task-pending")
    refused(answer, 400, "InvalidRequestArguments", "there is no exchange")


@pytest.mark.parametrize(
    "name", ["task", "Task-Pending", "taskPending", "task-pending ", "exchange/task-pending", "%2A", "#"]
)
def test_an_unknown_exchange_is_refused(queue: Queue, name: str) -> None:
    answer = ask(queue.http, f"?exchange={quote(name)}")
    refused(answer, 400, "InvalidRequestArguments", repr(name), *EXCHANGES)


@pytest.mark.parametrize(
    "pattern", ["", "a" * 256, "a*", "*a", "a.b#", "##", "**", "primary.*#", "\u00e4", "a\n", "a\tb", "\x00"]
)
def test_an_invalid_pattern_is_refused(queue: Queue, pattern: str) -> None:
    answer = ask(queue.http, f"?routingKey={quote(pattern)}")
    refused(answer, 400, "InvalidRequestArguments", "routingKey is")


def test_a_pattern_of_more_than_one_number_sign_is_refused(queue: Queue) -> None:
    answer = ask(queue.http, f"?routingKey={quote('#.a.#.b')}")
    refused(answer, 400, "InvalidRequestArguments", "'#.a.#.b' has more than one #: at most one is accepted")


@pytest.mark.parametrize(
    ("query", "mentioned"),
    [
        ("?limit=1", "events takes no query parameter 'limit'"),
        ("?routingkey=a", "'routingkey'"),
        ("?exchange=task-pending&exchange=task-failed", "exchange is given 2 times"),
        ("?routingKey=a&routingKey=a", "routingKey is given 2 times"),
        ("?continuationToken=a", "'continuationToken'"),
        ("?taskId=a", "'taskId'"),
    ],
)
def test_an_unknown_or_repeated_parameter_is_refused(queue: Queue, query: str, mentioned: str) -> None:
    answer = ask(queue.http, query)
    refused(answer, 400, "InvalidRequestArguments", mentioned)
    assert answer.get_json()["requestInfo"]["method"] == "events"


def test_invalid_credentials_are_ignored(queue: Queue) -> None:
    for credentials in (ROOT, Credentials("root", "w" * 40)):
        signed = hawk(credentials, "GET", f"{ROOT_URL}/events", NOW)
        assert ask(queue.http, "", {"Authorization": signed}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_and_head_of_events_are_served(queue: Queue, method: str) -> None:
    refused(ask(queue.http, method=method), 404, "ResourceNotFound", "/events")


def test_a_head_request_gets_the_same_headers_and_follows_nothing() -> None:
    answer = ask(serving(Feed(AssertionError("followed"))), method="HEAD")
    followed = ask(serving(Feed(FED)))
    assert (answer.status_code, answer.data) == (200, b"")
    for response in (answer, followed):
        del response.headers["x-request-id"]
    assert answer.headers == followed.headers
    followed.close()


def test_events_is_not_an_endpoint_of_the_queues_api(queue: Queue) -> None:
    refused(queue.send("GET", "/v1/events", credentials=None), 404, "ResourceNotFound")
    reference = queue.send("GET", "/references/queue/v1/api.json", credentials=None).get_json()
    assert "events" not in {entry["name"] for entry in reference["entries"]}


class Feed:
    """Yields the items of a test in turn: an exception is raised, a function is called for its item.

    It stands for the feed of a process or of a broker, whose own tests are in tests/services.
    """

    def __init__(self, *items: Any) -> None:
        self._items = items
        self.followers: list[str] = []

    def follow(
        self,
        _exchange: str | None,
        _pattern: str,
        _after: str,
        followers: Sequence[str],
        is_endless: bool,  # noqa: ARG002
        is_disconnected: Callable[[], bool],  # noqa: ARG002
    ) -> Iterator[Any]:
        self.followers = list(followers)
        if self._items and isinstance(self._items[0], Exception):
            raise self._items[0]
        return self._next_items()

    def _next_items(self) -> Iterator[Any]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item() if callable(item) else item
        raise AssertionError("the stream asked for more")


def serving(
    feed: Feed,
    clock: FakeClock | None = None,
    stopping: Flag | None = None,
    clients: Sequence[ConfiguredClient] = (),
    **more: Any,
) -> Client:
    fakes: Any = {"event_feed": feed, "clock": clock or FakeClock(NOW), "stopping": stopping or Flag()}
    services = replace(Queue().server.services, **fakes)
    authenticator = Authenticator({client.client_id: client for client in clients}, Roles({}))
    injection = FaultInjection(FaultRegistry(()), Flag())
    return Client(create_app(services, authenticator, ROOT_URL, injection, **more))


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


def test_an_event_of_a_broker_has_no_id() -> None:
    stream = frames(ask(serving(Feed(FED._replace(id="")))))
    assert set(next(stream)) == {"event", "data"}


def test_a_stream_ends_when_the_server_stops() -> None:
    stopping = Flag()
    http = serving(Feed(None, FED, stopping.set), stopping=stopping)
    assert exchanges_of(ask(http), 9) == [EVENT.exchange]


@pytest.mark.parametrize("away", [BrokerAway("away"), ServiceUnavailable("away")], ids=["broker", "storage"])
def test_a_stream_ends_when_the_broker_goes_away(away: Exception) -> None:
    assert exchanges_of(ask(serving(Feed(FED, away))), 9) == [EVENT.exchange]


@pytest.mark.parametrize("away", [BrokerAway("away"), ServiceUnavailable("away")], ids=["broker", "storage"])
def test_a_stream_cannot_begin_while_the_broker_is_away(away: Exception) -> None:
    answer = ask(serving(Feed(away)))
    refused(answer, 503, "ServiceUnavailable", "away")
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize(("trusts_proxy", "address"), [(False, "127.0.0.1"), (True, "192.0.2.7")])
def test_streams_are_counted_by_the_trusted_address(trusts_proxy: bool, address: str) -> None:
    feed = Feed()
    http = serving(feed, trusts_proxy=trusts_proxy)
    ask(http, headers={"x-forwarded-for": "198.51.100.1, 192.0.2.7", "x-forwarded-host": "queue.test"})
    assert feed.followers == [f"address {address}"]


def test_streams_are_counted_by_the_client_too() -> None:
    feed = Feed()
    http = serving(feed, clients=[ConfiguredClient(ROOT.client_id, ROOT.access_token, ("*",))])
    ask(http, headers={"authorization": hawk(ROOT, "GET", f"{ROOT_URL}/events", NOW)})
    assert feed.followers == ["address 127.0.0.1", f"client {ROOT.client_id}"]


def test_a_stream_ends_after_its_client_has_disconnected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
    with connection:
        http = serving(Feed(None, FED, there.close))
        answer = http.open(
            "/events",
            environ_overrides={"RAW_URI": "/events", "gunicorn.socket": connection},
        )
        assert [frame["event"] for frame in frames(answer)] == [EVENT.exchange]
