"""The broker over AMQP, with a real RabbitMQ and real consumers."""

import json
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.amqp import AmqpBroker
from legacy_queue.domain.events import EXCHANGES, Event
from legacy_queue.ports import BrokerAway
from legacy_queue.server.local_authority import LocalAuthority
from tests.adapters.amqp_consumers import Consumer, Network, consumer, event, full_name
from tests.rabbitmq import RabbitMQ

pytestmark = pytest.mark.processes

LONG = timedelta(seconds=30)  # no operation takes that long


@pytest.fixture
def project(rabbitmq: RabbitMQ) -> Iterator[str]:
    """The name of a project that only this test uses."""
    name = f"test-{secrets.token_hex(4)}"
    yield name
    with consumer(rabbitmq.url, name) as cleaner:
        cleaner.clean_up()


@pytest.fixture
def connected() -> Iterator[Callable[..., AmqpBroker]]:
    """A function that makes AmqpBrokers. When the test ends, they are closed."""
    made: list[AmqpBroker] = []

    def connect(url: str, project: str, confirm_timeout: timedelta = LONG, *more: Any) -> AmqpBroker:
        made.append(AmqpBroker(url, project, confirm_timeout, *more))
        return made[-1]

    yield connect
    for broker in made:
        broker.close()


@pytest.fixture
def broker(rabbitmq: RabbitMQ, project: str, connected: Callable[..., AmqpBroker]) -> AmqpBroker:
    return connected(rabbitmq.url, project)


@pytest.fixture
def listener(rabbitmq: RabbitMQ, project: str) -> Iterator[Consumer]:
    """A consumer of task-pending."""
    with consumer(rabbitmq.url, project) as connected:
        connected.bind("task-pending", "#")
        yield connected


@pytest.fixture
def network(rabbitmq: RabbitMQ) -> Iterator[Network]:
    proxy = Network(rabbitmq.url)
    yield proxy
    proxy.close()


@pytest.fixture
def remote_broker(network: Network, project: str, connected: Callable[..., AmqpBroker]) -> AmqpBroker:
    """A connection to the broker through the network."""
    return connected(network.url, project)


class TlsRabbitMQ(NamedTuple):
    """A RabbitMQ with TLS, and its folder. A test can stop it if it starts it again."""

    rabbitmq: RabbitMQ
    folder: Path
    authority: Path  # the authority of its certificate
    tls_port: int


@pytest.fixture(scope="module")
def tls_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsRabbitMQ]:
    folder = tmp_path_factory.mktemp("rabbitmq")
    authority = LocalAuthority(tmp_path_factory.mktemp("tls"))
    authority.ensure(datetime.now(UTC))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": str(authority.certificate),
        **{f"ssl_options.{name}": str(authority.server) for name in ("certfile", "keyfile")},
    }
    with RabbitMQ(folder, settings=settings) as running:
        yield TlsRabbitMQ(running, folder, authority.certificate, port)


def keys(messages: list[Any]) -> list[str]:
    return [message.delivery_info["routing_key"] for message in messages]


def test_a_consumer_gets_each_event_once_as_persistent_json_with_its_routes_in_cc(
    broker: AmqpBroker, listener: Consumer
) -> None:
    for pattern in ("primary.#", "route.index.#"):
        listener.bind("task-pending", pattern)
    broker.publish([event("task-pending", "primary.task._", "index.a.b", "notify", runId=0, text="é")])
    [message] = listener.messages()
    assert json.loads(message.body) == {"version": 1, "runId": 0, "text": "é"}
    assert message.delivery_info["routing_key"] == "primary.task._"
    assert message.properties["delivery_mode"] == 2
    assert message.properties["content_type"] == "application/json"
    assert message.headers == {"CC": ["route.index.a.b", "route.notify"]}


def test_publish_returns_when_the_events_have_arrived_in_order_and_uses_at_most_eight_connections(
    network: Network, remote_broker: AmqpBroker, listener: Consumer
) -> None:
    for exchange in EXCHANGES:
        listener.bind(exchange, "#")

    def publish(name: int) -> None:
        for number in range(5):
            remote_broker.publish([event(exchange, f"{name}.{number}") for exchange in EXCHANGES])

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(publish, range(20)))
    assert 1 <= network.connections <= 8
    arrived = keys(listener.messages())
    for name in range(20):
        expected = [f"{name}.{number}" for number in range(5) for _ in EXCHANGES]
        assert [one for one in arrived if one.startswith(f"{name}.")] == expected


def test_a_connection_is_replaced_if_it_was_lost_or_its_caller_was_killed(
    network: Network, remote_broker: AmqpBroker, listener: Consumer
) -> None:
    """A greenlet can be killed while it publishes. Then an answer is still outstanding on its connection."""

    class Killed(BaseException):
        pass

    class Killing(dict[str, object]):
        def items(self) -> NoReturn:
            raise Killed

    with pytest.raises(Killed):
        remote_broker.publish(
            [event("task-pending", "sent"), Event("task-pending", "unsent", (), Killing(a=1))]
        )
    remote_broker.publish([event("task-pending", "later")])
    network.disconnect()
    remote_broker.publish([event("task-pending", "last")])
    assert keys(listener.messages()) == ["sent", "later", "last"]
    assert network.connections == 3


def test_a_broker_that_does_not_confirm_in_time_is_away(
    network: Network, project: str, connected: Callable[..., AmqpBroker], listener: Consumer
) -> None:
    broker = connected(network.url, project, timedelta(seconds=2))
    broker.publish([event("task-pending", "first")])
    network.swallows.set()
    with pytest.raises(BrokerAway, match=r"confirmed within 2 s|timed out"):
        broker.publish([event("task-pending", "unsure")])
    network.swallows.clear()
    broker.publish([event("task-pending", "last")])
    assert keys(listener.messages()) == ["first", "unsure", "last"], (
        "the event had arrived although it was not confirmed"
    )
    assert network.connections == 2, "a connection with an outstanding answer is not used again"


def test_a_broker_that_rejects_a_message_is_away(
    broker: AmqpBroker, listener: Consumer, project: str
) -> None:
    """RabbitMQ rejects messages for a full queue."""
    broker.check()
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    full = listener.channel.queue_declare(exclusive=True, arguments=arguments).queue
    listener.channel.queue_bind(full, full_name(project, "task-failed"), "#")
    broker.publish([event("task-failed")])
    with pytest.raises(BrokerAway, match="it rejected a message"):
        broker.publish([event("task-failed")])
    assert len(listener.messages(full)) == 1
    broker.publish([event("task-failed")])


def test_removed_exchanges_are_declared_again_by_the_next_check_and_after_a_failure(
    network: Network, project: str, remote_broker: AmqpBroker, listener: Consumer
) -> None:
    for _ in range(2):
        remote_broker.check()
        for exchange in EXCHANGES:  # consumers bind their queue before the first event
            listener.channel.queue_bind(listener.queue, full_name(project, exchange), "#")
            listener.channel.exchange_delete(full_name(project, exchange))
        network.disconnect()
    assert network.connections == 2
    remote_broker.check()
    listener.channel.exchange_delete(full_name(project, "task-failed"))
    with pytest.raises(BrokerAway, match="no exchange"):
        remote_broker.publish([event("task-failed")])
    remote_broker.publish([event("task-failed")])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: re.sub(r"//\S+@", "//guest:hunter2secret@", url), "ACCESS_REFUSED"),
        (lambda url: re.sub(r"/[^/]*$", "/nowhere", url), "nowhere not found|vhost 'nowhere' refused"),
    ],
    ids=["a wrong password", "a missing vhost"],
)
def test_a_broker_that_refuses_the_login_is_away_and_the_log_says_why_once(
    rabbitmq: RabbitMQ, connected: Callable[..., AmqpBroker], change: Callable[[str], str], reason: str
) -> None:
    broker = connected(change(rabbitmq.url), "project")
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(BrokerAway, match=reason) as refused:
                broker.check()
    [line] = logs
    assert (line["event"], line["log_level"]) == ("broker-failed", "error")
    assert re.search(reason, line["why"])
    assert f"@{line['broker']}/" in rabbitmq.url
    for said in (str(line), str(refused.value)):
        assert "hunter2" not in said
        assert "amqp://" not in said


def test_a_broker_is_away_while_it_is_stopped_or_blocks_publishers(
    tls_rabbitmq: TlsRabbitMQ, connected: Callable[..., AmqpBroker]
) -> None:
    rabbitmq = tls_rabbitmq.rabbitmq
    broker = connected(rabbitmq.url, "stopped")
    broker.publish([event("task-pending", "unread")])
    with consumer(rabbitmq.url, "stopped") as before:
        before.channel.queue_declare("kept", durable=True, auto_delete=False)
        before.channel.queue_bind("kept", full_name("stopped", "task-pending"), "#")
    broker.publish([event("task-pending", "before")])
    acts: list[Callable[[], None]] = [lambda: broker.publish([event()]), broker.check]
    rabbitmq.stop()
    for act in acts:
        with pytest.raises(BrokerAway):
            act()
    settings = {"disk_free_limit.absolute": "1000000GB"}
    with RabbitMQ(tls_rabbitmq.folder, settings=settings) as blocked:
        assert blocked.url == rabbitmq.url
        for act in acts:
            with pytest.raises(BrokerAway, match="it is short of memory or disk"):
                act()
    rabbitmq.start()
    broker.publish([event("task-pending", "after")])
    with consumer(rabbitmq.url, "stopped") as after:
        assert keys(after.messages("kept")) == ["before", "after"]


def test_amqps_needs_a_broker_whose_certificate_is_trusted(
    tls_rabbitmq: TlsRabbitMQ, connected: Callable[..., AmqpBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = urlsplit(tls_rabbitmq.rabbitmq.url).netloc.partition("@")[0]
    url = f"amqps://{user}@localhost:{tls_rabbitmq.tls_port}"
    with capture_logs() as logs, pytest.raises(BrokerAway, match="CERTIFICATE_VERIFY_FAILED"):
        connected(url, "tls").check()
    assert [line["log_level"] for line in logs] == ["error"]
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_rabbitmq.authority))
    broker = connected(url, "tls")
    broker.check()
    broker.publish([event(), event(text="x" * 500_000)])
