"""``GET /events``: what is told, to whom, from where on, and how it ends."""

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import Client, TestResponse

from legacy_queue.cli.response import ClientSocket
from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EXCHANGES, Event, group_resolved
from legacy_queue.domain.scopes import Roles
from legacy_queue.http.app import create_app
from legacy_queue.http.dispatch import Backend
from legacy_queue.ports import BrokerAway
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
TOLD = group_resolved(GROUP_ID, "a-scheduler")


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
    """The fields of each frame, once the first one has said when to come back; a comment's name is empty."""
    assert (answer.status_code, answer.content_type) == (200, "text/event-stream")
    chunks = (chunk.decode() for chunk in answer.iter_encoded())
    assert next(chunks) == "retry: 2000\n\n"
    for chunk in chunks:
        [frame] = parse_events(chunk.encode().splitlines())
        yield frame


def exchanges_of(answer: TestResponse, count: int) -> list[str]:
    return [frame["event"] for frame in islice(frames(answer), count)]


def test_what_is_published_is_in_the_stream(queue: Queue) -> None:
    stream = frames(ask(queue.http))
    queue.running(TASK_ID, routes=["index.a.b", "tc-treeherder.v2"])
    told = queue.published()
    assert [event.exchange for event in told] == ["task-defined", "task-pending", "task-running"]
    for event, frame in zip(told, stream, strict=False):
        assert set(frame) == {"id", "event", "data"}
        assert frame["event"] == event.exchange
        assert json.loads(frame["data"]) == {
            "exchange": f"exchange/taskcluster-queue/v1/{event.exchange}",
            "routingKey": event.routing_key,
            "routes": ["index.a.b", "tc-treeherder.v2"],
            "payload": event.payload,
        }


def test_what_was_published_before_is_not_in_the_stream(queue: Queue) -> None:
    queue.create(TASK_ID)
    stream = frames(ask(queue.http))
    queue.create(OTHER_ID)
    assert json.loads(next(stream)["data"])["payload"]["status"]["taskId"] == OTHER_ID


def test_without_following_the_answer_ends_behind_the_events_that_there_are(queue: Queue) -> None:
    queue.create(TASK_ID)
    query = f"?follow=false&lastEventId={'0' * 16}"
    assert exchanges_of(ask(queue.http, query), 9) == ["begins-anew", "task-defined", "task-pending"]


def test_a_stream_is_not_to_be_kept_by_a_proxy(queue: Queue) -> None:
    headers = ask(queue.http).headers
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers


@pytest.mark.parametrize("way", ["header", "query", "header and query"])
def test_a_stream_goes_on_behind_an_event(queue: Queue, way: str) -> None:
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


def test_a_stream_says_that_it_begins_anew_after_a_restart(queue: Queue) -> None:
    before = frames(ask(queue.http))
    queue.create(TASK_ID)
    last = [next(before) for _ in range(2)][-1]["id"]
    restarted = Queue(clock=FakeClock(NOW + SECOND))
    restarted.create(OTHER_ID)
    resumed = frames(ask(restarted.http, headers={"Last-Event-ID": last}))
    first, second = next(resumed), next(resumed)
    assert first == {"event": "begins-anew", "data": "{}"}
    assert (second["event"], OTHER_ID in second["data"]) == ("task-defined", True)
    assert (
        next(frames(ask(restarted.http, headers={"Last-Event-ID": second["id"]})))["event"] == "task-pending"
    )


@pytest.mark.parametrize("bad", ["x", "0", "-1", "1" * 15, "1" * 17, "1" * 300, "\u00e4", "a b", "null"])
def test_an_id_that_is_none_is_refused(queue: Queue, bad: str) -> None:
    refused(ask(queue.http, f"?lastEventId={quote(bad)}"), 400, "InvalidRequestArguments", "lastEventId is")
    answer = ask(queue.http, "", {"Last-Event-ID": bad})
    refused(answer, 400, "InvalidRequestArguments", "lastEventId is")


@pytest.mark.parametrize("name", [name for name in EXCHANGES if name not in ("artifact-created",)])
@pytest.mark.parametrize("prefix", ["", "exchange/taskcluster-queue/v1/"])
def test_one_exchange_is_followed(queue: Queue, name: str, prefix: str) -> None:
    answer = ask(queue.http, f"?exchange={quote(prefix + name, safe='')}")
    for report in ("reportCompleted", "reportFailed"):
        succeeded(queue.call(report, taskId=queue.running(), runId=0))
    task_id = queue.create()
    succeeded(queue.call("changeTaskGroupPriority", {"newPriority": "high"}, taskGroupId=task_id))
    succeeded(queue.call("sealTaskGroup", taskGroupId=task_id))
    queue.canceled()
    queue.server.services.event_feed.append([TOLD])
    assert exchanges_of(answer, 1) == [name]


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
def test_an_exchange_that_is_not_there_is_refused(queue: Queue, name: str) -> None:
    answer = ask(queue.http, f"?exchange={quote(name)}")
    refused(answer, 400, "InvalidRequestArguments", repr(name), *EXCHANGES)


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("#", [TASK_ID, OTHER_ID]),
        ("primary.#", [TASK_ID, OTHER_ID]),
        (f"primary.{TASK_ID}.#", [TASK_ID]),
        (f"primary.{OTHER_ID}.*.*.*.*.*.*.*.#", [OTHER_ID]),
        (f"primary.*.*.*.*.*.*.*.{OTHER_ID}._", [OTHER_ID]),
        ("primary.*.*.*.*.*.another-worker.#", [OTHER_ID]),
        ("route.index.*.b", [TASK_ID]),
        ("route.#", [TASK_ID, OTHER_ID]),
        ("route.index.#", [TASK_ID]),
        ("route.a route with ~ and spaces", [OTHER_ID]),
        ("#._", [TASK_ID, OTHER_ID]),
        ("*.index.#", [TASK_ID]),
    ],
)
def test_a_pattern_matches_what_a_broker_would_say(queue: Queue, pattern: str, matching: list[str]) -> None:
    answer = ask(queue.http, f"?exchange=task-defined&routingKey={quote(pattern)}")
    queue.create(TASK_ID, routes=["index.a.b", "index.a.b.c"])
    queue.create(OTHER_ID, routes=["a route with ~ and spaces"], workerType="another-worker")
    stream = frames(answer)
    found = [json.loads(next(stream)["data"])["payload"]["status"]["taskId"] for _ in matching]
    assert found == matching


@pytest.mark.parametrize("pattern", ["primary.#", "#", "*", "a..b", ".", "a" * 255, "*.#.*", "route.a b"])
def test_a_good_pattern_is_followed(queue: Queue, pattern: str) -> None:
    assert ask(queue.http, f"?routingKey={quote(pattern)}").status_code == 200


@pytest.mark.parametrize(
    "pattern", ["", "a" * 256, "a*", "*a", "a.b#", "##", "**", "primary.*#", "\u00e4", "a\n", "a\tb", "\x00"]
)
def test_a_bad_pattern_is_refused(queue: Queue, pattern: str) -> None:
    answer = ask(queue.http, f"?routingKey={quote(pattern)}")
    refused(answer, 400, "InvalidRequestArguments", "routingKey is")


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
def test_a_query_that_means_nothing_is_refused(queue: Queue, query: str, mentioned: str) -> None:
    answer = ask(queue.http, query)
    refused(answer, 400, "InvalidRequestArguments", mentioned)
    assert answer.get_json()["requestInfo"]["method"] == "events"


def test_a_wrong_key_is_as_good_as_none(queue: Queue) -> None:
    for credentials in (ROOT, Credentials("root", "w" * 40)):
        signed = hawk(credentials, "GET", f"{ROOT_URL}/events", NOW)
        assert ask(queue.http, "", {"Authorization": signed}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_else_can_be_done_to_events(queue: Queue, method: str) -> None:
    refused(ask(queue.http, method=method), 404, "ResourceNotFound", "/events")


def test_whoever_asks_for_the_headers_alone_gets_the_same_and_follows_nothing() -> None:
    answer = ask(serving(Feed(AssertionError("followed"))), method="HEAD")
    followed = ask(serving(Feed(("1", TOLD))))
    assert (answer.status_code, answer.data) == (200, b"")
    for one in (answer, followed):
        del one.headers["x-request-id"]
    assert answer.headers == followed.headers
    followed.close()


def test_events_are_no_endpoint_of_the_api(queue: Queue) -> None:
    refused(queue.send("GET", "/v1/events", credentials=None), 404, "ResourceNotFound")
    reference = queue.send("GET", "/references/queue/v1/api.json", credentials=None).get_json()
    assert "events" not in {entry["name"] for entry in reference["entries"]}


class Feed:
    """Gives what a test says, one after the other; an exception is raised, a function called for its answer.

    The source of events stands for storage or a broker here, which are tested where they are.
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
        return self._given()

    def _given(self) -> Iterator[Any]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item() if callable(item) else item
        raise AssertionError("the stream asked for more")


def serving(feed: Feed, clock: FakeClock | None = None, stopping: Flag | None = None, **more: Any) -> Client:
    services = SimpleNamespace(event_feed=feed, claim_work=SimpleNamespace(waiting=int))
    backend: Any = {"services": services, "storage": None, "root_url": ROOT_URL}
    authenticator = Authenticator({}, Roles({}))
    return Client(
        create_app(
            Backend(
                **backend,
                authenticator=authenticator,
                clock=clock or FakeClock(NOW),
                stopping=stopping or Flag(),
                **more,
            )
        )
    )


def test_a_stream_is_never_quiet_for_more_than_fifteen_seconds() -> None:
    clock = FakeClock(NOW)

    def later(seconds: float, event: tuple[str, Event] | None = None) -> Any:
        return lambda: (clock.advance(timedelta(seconds=seconds)), event)[1]

    feed = Feed(later(0), later(14), later(1), later(14), later(0.999, ("1", TOLD)), later(14.9), later(0.1))
    stream = frames(ask(serving(feed, clock)))
    told = [next(stream) for _ in range(3)]
    assert [frame.get("event", frame.get("")) for frame in told] == [
        "keep-alive",
        TOLD.exchange,
        "keep-alive",
    ]


def test_an_event_of_a_broker_has_no_id() -> None:
    stream = frames(ask(serving(Feed(("", TOLD)))))
    assert set(next(stream)) == {"event", "data"}


def test_a_stream_ends_when_the_server_stops() -> None:
    stopping = Flag()
    http = serving(Feed(None, ("1", TOLD), stopping.set), stopping=stopping)
    assert exchanges_of(ask(http), 9) == [TOLD.exchange]


@pytest.mark.parametrize("away", [BrokerAway("away"), ServiceUnavailable("away")], ids=["broker", "storage"])
def test_a_stream_ends_when_the_broker_goes_away(away: Exception) -> None:
    assert exchanges_of(ask(serving(Feed(("1", TOLD), away))), 9) == [TOLD.exchange]


@pytest.mark.parametrize("away", [BrokerAway("away"), ServiceUnavailable("away")], ids=["broker", "storage"])
def test_a_broker_that_is_away_is_not_followed(away: Exception) -> None:
    answer = ask(serving(Feed(away)))
    refused(answer, 503, "ServiceUnavailable", "away")
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize(("trusts_proxy", "address"), [(False, "127.0.0.1"), (True, "192.0.2.7")])
def test_streams_are_counted_by_the_address_that_can_be_believed(trusts_proxy: bool, address: str) -> None:
    feed = Feed()
    http = serving(feed, trusts_proxy=trusts_proxy)
    ask(http, headers={"x-forwarded-for": "198.51.100.1, 192.0.2.7", "x-forwarded-host": "queue.test"})
    assert feed.followers == [f"address {address}"]


def test_streams_are_counted_by_the_client_too(queue: Queue) -> None:
    feed = queue.server.services.event_feed
    headers = {"authorization": hawk(ROOT, "GET", f"{ROOT_URL}/events", NOW)}
    streams = [ask(queue.http, headers=headers) for _ in range(2)]
    assert [f"client {ROOT.client_id}" in one.followers for one in feed._streams] == [True, True]
    for stream in streams:
        stream.close()
    assert not feed._streams


def test_a_stream_ends_with_the_next_look_once_its_client_is_gone() -> None:
    here, there = socket.socketpair()
    with ClientSocket(fileno=here.detach()) as connection:
        http = serving(Feed(None, ("1", TOLD), there.close))
        answer = http.open(
            "/events",
            environ_overrides={"RAW_URI": "/events", "gunicorn.socket": connection},
        )
        assert [frame["event"] for frame in frames(answer)] == [TOLD.exchange]
