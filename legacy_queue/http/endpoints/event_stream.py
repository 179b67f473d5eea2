"""``GET /events``: the queue's events as server-sent events, with or without a broker.

Source: "Queue AMQP Exchanges" for the events, the HTML standard's "Server-sent events" for the form.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event as Flag

from flask import Response

from legacy_queue.domain.authentication import Identity
from legacy_queue.domain.errors import InvalidRequestArguments, ServiceUnavailable
from legacy_queue.domain.events import EXCHANGES
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.scopes import AnyOf
from legacy_queue.http.client_connection import disconnected
from legacy_queue.http.endpoint import Call, Endpoint, endpoint
from legacy_queue.http.request_log import Environ
from legacy_queue.ports import BrokerAway, Clock
from legacy_queue.services.events.event_feed import BeginsAnew, EventFeed, FedEvent

_RETRY = 2000  # milliseconds until a client comes back
_KEEP_ALIVE = timedelta(seconds=15)
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the second is nginx's


def events_endpoint(
    project: str, clock: Clock, stopping: Flag, sign_in: Callable[[Environ], Identity | None]
) -> Endpoint:
    """``/events`` with the exchanges of the project. Its streams end once ``stopping`` is set.

    The pages follow them too, with the cookie that ``sign_in`` knows.
    """

    @endpoint(
        "GET",
        "/events",
        "Follow Events",
        query=("exchange", "follow", "lastEventId", "routingKey"),
        scopes=AnyOf(("queue:events", "queue:inspect")),
        sign_in=sign_in,
    )
    def events(call: Call[EventFeed]) -> Response:
        """The events from now on, or those after the event with the id in Last-Event-ID. The stream goes on
        until the client or the server ends it.

        No event after the beginning of the answer is missed. Without a broker these are the events of this
        process, which keeps the last 10,000. If events after that id are lost, as after a restart, the event
        ``begins-anew`` comes first. Each of several processes has its own events: only a broker has all of
        them. With ``follow`` false the answer ends after the events that this process has kept. A routingKey
        has at most one ``#``.
        """
        exchange = _exchange(call.query["exchange"], project) if "exchange" in call.query else None
        after = call.environ.get("HTTP_LAST_EVENT_ID", call.query.get("lastEventId", ""))
        feed = call.authorize()
        stream: Iterator[bytes] = iter(())
        is_disconnected = disconnected(call.environ)
        if call.environ["REQUEST_METHOD"] != "HEAD":
            try:
                followed = feed.follow(
                    exchange,
                    call.query.get("routingKey", "#"),
                    after,
                    _followers(call),
                    is_endless=call.query.get("follow") != "false",
                    is_disconnected=is_disconnected,
                )
            except ValueError as error:
                raise InvalidRequestArguments(str(error)) from None
            except BrokerAway:
                raise ServiceUnavailable("the broker is away: its events cannot be followed now") from None
            stream = _stream(followed, project, clock, lambda: stopping.is_set() or is_disconnected())
        return Response(stream, content_type="text/event-stream", headers=_HEADERS)

    return events


def _followers(call: Call[EventFeed]) -> list[str]:
    """The address of the caller, and the client if there are credentials."""
    address: str = call.environ.get("REMOTE_ADDR", "")
    return [f"address {address}", *([f"client {call.client_id}"] if call.client_id else [])]


def _exchange(name: str, project: str) -> str:
    short = name.removeprefix(f"exchange/{project}/v1/")
    if short not in EXCHANGES:
        raise InvalidRequestArguments(f"there is no exchange {name!r}; there are {', '.join(EXCHANGES)}")
    return short


def _stream(
    followed: Iterator[FedEvent | BeginsAnew | None], project: str, clock: Clock, is_over: Callable[[], bool]
) -> Iterator[bytes]:
    yield b"retry: %d\n\n" % _RETRY
    last = clock.monotonic()
    try:
        for item in followed:
            if item or clock.monotonic() - last >= _KEEP_ALIVE:
                yield _framed(item, project) if item else b": keep-alive\n\n"
                last = clock.monotonic()
            if is_over():
                return
    except (BrokerAway, ServiceUnavailable):
        return  # the client connects again, and gets the reason if it still holds


def _framed(item: FedEvent | BeginsAnew, project: str) -> bytes:
    if isinstance(item, str):
        return b"event: %b\ndata: {}\n\n" % item.encode()  # an EventSource ignores an event without data
    exchange = EXCHANGES[item.exchange].full_name(project)
    about = to_json({"exchange": exchange, "routingKey": item.routing_key, "routes": item.routes})
    head = (f"id: {item.id}\n" if item.id else "") + f"event: {item.exchange}\ndata: "
    return b'%b%b,"payload":%b}\n\n' % (head.encode(), about[:-1], item.payload)
