"""``GET /events`` sends the queue's events as server-sent events.

Source: "Queue AMQP Exchanges" for the events, the HTML standard's "Server-sent events" for the form.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import takewhile

from flask import Response

from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.domain.events import EXCHANGES
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.scopes import AnyOf
from legacy_queue.domain.topics import topic_regex
from legacy_queue.http.client_connection import disconnected
from legacy_queue.http.endpoint import Call, endpoint
from legacy_queue.http.endpoints.inspect import SCOPE, inspect_endpoint
from legacy_queue.http.site import Site
from legacy_queue.ports import Clock
from legacy_queue.services.events.event_buffer import BufferedEvent
from legacy_queue.services.events.event_streams import EventFilter, Following, Gap

_QUERY = ("exchange", "follow", "lastEventId", "routingKey")
_RETRY = 2000  # milliseconds after which a client connects again
_KEEP_ALIVE = timedelta(seconds=15)
# Programs written for 0.1.0 know this event by its name, and take every other one for an event of the queue.
# A second event with a plainer name would break them, so the plain word is in the data.
_GAP = b'event: begins-anew\ndata: {"gap":true}\n\n'
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # the second is nginx's
_AT_THE_BROKER = (
    "this queue publishes its events to the broker that the setting amqp-url names, on the topic exchanges "
    "{}. Consume them there. This line of Python prints each event. It needs kombu, and the broker's URL in "
    "LEGACY_QUEUE_AMQP_URL:\n"
    "import kombu, os; queue = kombu.Connection(os.environ['LEGACY_QUEUE_AMQP_URL']).SimpleQueue(kombu.Queue("
    "exclusive=True, bindings=[kombu.binding(kombu.Exchange('exchange/{}/v1/' + name, 'topic'), '#') "
    "for name in '{}'.split()]), no_ack=True); any(print(event.payload) for event in iter(queue.get, None))"
)


def _at_the_broker(site: Site) -> str:
    if not site.services.publisher.has_broker:
        return ""
    names = ", ".join(exchange.full_name(site.project) for exchange in EXCHANGES.values())
    return _AT_THE_BROKER.format(names, site.project, " ".join(EXCHANGES))


@endpoint(
    "GET",
    "/events",
    "Follow Events",
    query=_QUERY,
    scopes=AnyOf(("queue:events", SCOPE)),
    has_prefix=False,
    is_recorded=False,
    disabled=_at_the_broker,
)
def events(call: Call) -> Response:
    """Follow the events of this server process, which keeps the last 10,000.

    The answer is a stream that goes on until the client or the server ends it. It begins with the event after
    the id in Last-Event-ID, or without that header with the first event from now on. If events after that id
    are lost, for example by a restart, an event ``begins-anew`` with the data ``{"gap":true}`` comes first.
    From the beginning of the answer on, no event is missed. With ``follow=false`` the answer ends after the
    events that this process has kept. A routingKey has at most one ``#``.

    Each process sends only its own events: with several processes you need a broker for a complete stream.
    With a broker the answer is 404, and says how to consume the events there.
    """
    return _answer(call)


@inspect_endpoint("GET", "/inspect/v1/events", "Inspect Events", query=_QUERY, takes_cookies=True)
def inspect_events(call: Call) -> Response:
    """Follow the events of this server process, as ``/events`` does, but also with a broker.

    It is for a person who looks at the queue: events that other processes have published are missing.
    """
    return _answer(call)


def _answer(call: Call) -> Response:
    site = call.authorize()
    clock = site.services.clock
    exchange = _exchange(call.query["exchange"], site.project) if "exchange" in call.query else None
    after = call.environ.get("HTTP_LAST_EVENT_ID", call.query.get("lastEventId", ""))
    stream: Iterator[bytes] = iter(())
    if call.environ["REQUEST_METHOD"] != "HEAD":
        address = f"address {call.environ.get('REMOTE_ADDR', '')}"
        names = (address, f"client {call.client_id}") if call.client_id else (address,)
        try:
            wanted = EventFilter(exchange, topic_regex(call.query.get("routingKey", "#")))
            following = site.services.event_streams.follow(wanted, after, names, disconnected(call.environ))
        except ValueError as error:
            raise InvalidRequestArguments(str(error)) from None
        if call.query.get("follow") == "false":
            following = takewhile(bool, following)
        stream = _stream(following, site.project, clock)
    return Response(stream, content_type="text/event-stream", headers=_HEADERS)


def _exchange(name: str, project: str) -> str:
    short = name.removeprefix(f"exchange/{project}/v1/")
    if short not in EXCHANGES:
        raise InvalidRequestArguments(f"exchange is {name!r}: expected one of {', '.join(EXCHANGES)}")
    return short


def _stream(following: Following, project: str, clock: Clock) -> Iterator[bytes]:
    yield b"retry: %d\n\n" % _RETRY
    last = clock.monotonic()
    for item in following:
        if item or clock.monotonic() - last >= _KEEP_ALIVE:
            yield _framed(item, project) if item else b": keep-alive\n\n"
            last = clock.monotonic()


def _framed(item: BufferedEvent | Gap, project: str) -> bytes:
    if isinstance(item, str):
        return _GAP
    exchange = EXCHANGES[item.exchange].full_name(project)
    about = to_json({"exchange": exchange, "routingKey": item.routing_key, "routes": item.routes})
    head = f"id: {item.id}\nevent: {item.exchange}\ndata: "
    return b'%b%b,"payload":%b}\n\n' % (head.encode(), about[:-1], item.payload)
