"""The broker over AMQP, with a real RabbitMQ and real consumers."""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from legacy_queue.adapters.amqp import AmqpBroker
from legacy_queue.domain.events import EXCHANGES, Event
from legacy_queue.ports import BrokerAway
from tests.adapters.amqp_side import Consumer, Network, consumer, event, full_name
from tests.adapters.test_azurite_process import eventually
from tests.rabbitmq import RabbitMQ

SHORT = timedelta(seconds=2)
LONG = timedelta(seconds=30)  # that nothing takes

# Greenlets that publish and one that follows, on one broker, in a patched process; prints what it followed.
UNDER_GEVENT = """
from gevent import monkey
monkey.patch_all()

import sys
from datetime import timedelta

import gevent

from legacy_queue.adapters.amqp import AmqpBroker
from legacy_queue.domain.events import Event

broker = AmqpBroker(sys.argv[1], sys.argv[2], timedelta(seconds=30))
following = broker.follow("task-pending", "primary.#")

def publish(name):
    for number in range(10):
        broker.publish([Event("task-pending", f"primary.{name}.{number}", (), {})])

def follow():
    keys = []
    for event in following:
        if event:
            keys.append(event.routing_key)
        if len(keys) == 200:
            return keys

killed = gevent.spawn(broker.publish, [Event("task-failed", "killed", (), {})] * 1000)
gevent.sleep(0)
killed.kill()
ran = []
other = gevent.spawn(lambda: [(gevent.sleep(0.001), ran.append(1)) for _ in range(5)])
publishers = [gevent.spawn(publish, name) for name in range(20)]
reader = gevent.spawn(follow)
gevent.joinall([*publishers, other], raise_error=True)
keys = reader.get(timeout=30)
assert len(ran) == 5
for name in range(20):
    mine = [key for key in keys if key.split(".")[1] == str(name)]
    assert mine == [f"primary.{name}.{number}" for number in range(10)], mine
following.close()
broker.close()
print("all of them, in order")
"""


@pytest.fixture
def project(rabbitmq: RabbitMQ) -> Iterator[str]:
    """A project of this test's own."""
    name = f"test-{secrets.token_hex(4)}"
    yield name
    with consumer(rabbitmq.url, name) as cleaner:
        cleaner.clean_up()


@pytest.fixture
def connected() -> Iterator[Callable[..., AmqpBroker]]:
    """Makes AmqpBrokers that are closed when the test ends."""
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
    with consumer(rabbitmq.url, project) as one:
        yield one


@pytest.fixture
def network(rabbitmq: RabbitMQ) -> Iterator[Network]:
    one = Network(rabbitmq.url)
    yield one
    one.close()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, rabbitmq_home: Path) -> Iterator[RabbitMQ]:
    """A RabbitMQ that a test may stop, if it starts it again."""
    with RabbitMQ(tmp_path_factory.mktemp("own"), rabbitmq_home) as running:
        yield running


def keys(messages: list[Any]) -> list[str]:
    return [message.delivery_info["routing_key"] for message in messages]


def followed(following: Iterator[Event | None], count: int) -> list[Event]:
    """The next so many events."""
    found: list[Event] = []
    while len(found) < count:
        found += filter(None, [next(following)])
    return found


def test_a_consumer_gets_a_persistent_message_of_json_with_the_routes_in_cc(
    broker: AmqpBroker, listener: Consumer
) -> None:
    listener.bind("task-pending", "primary.#")
    broker.publish([event("task-pending", "primary.task._", "index.a.b", "notify", runId=0, text="é")])
    [message] = listener.messages()
    assert json.loads(message.body) == {"version": 1, "runId": 0, "text": "é"}
    assert message.delivery_info["routing_key"] == "primary.task._"
    assert message.properties["delivery_mode"] == 2
    assert message.properties["content_type"] == "application/json"
    assert message.headers == {"CC": ["route.index.a.b", "route.notify"]}


def test_each_event_is_confirmed_when_publish_returns_and_they_keep_their_order(
    broker: AmqpBroker, listener: Consumer
) -> None:
    for exchange in EXCHANGES:
        listener.bind(exchange, "#")
    sent = [event(exchange, f"primary.{number}") for number in range(50) for exchange in EXCHANGES]
    broker.publish(sent)
    assert keys(listener.messages()) == [one.routing_key for one in sent]


def test_a_message_of_many_frames_arrives_whole(broker: AmqpBroker, listener: Consumer) -> None:
    listener.bind("task-pending", "#")
    broker.publish([event(text="x" * 500_000)])
    [message] = listener.messages()
    assert len(json.loads(message.body)["text"]) == 500_000


def test_nothing_to_publish_is_published(broker: AmqpBroker) -> None:
    broker.publish([])


@pytest.mark.parametrize("patterns", [["route.index.#"], ["route.index.#", "primary.#", "route.other"]])
def test_a_consumer_gets_it_once_however_many_of_its_keys_match(
    broker: AmqpBroker, listener: Consumer, patterns: list[str]
) -> None:
    for pattern in patterns:
        listener.bind("task-pending", pattern)
    broker.publish([event("task-pending", "primary.task._", "index.a.b", "other")])
    broker.publish([event("task-pending", "secondary.task._", "else")])
    assert keys(listener.messages()) == ["primary.task._"]


def test_the_exchanges_are_durable_topics(broker: AmqpBroker, listener: Consumer, project: str) -> None:
    broker.check()
    for name in EXCHANGES:
        listener.channel.exchange_declare(full_name(project, name), "", passive=True)  # refused if not there
        # refused if it is anything else
        listener.channel.exchange_declare(full_name(project, name), "topic", durable=True, auto_delete=False)


def test_a_check_is_seen_by_no_consumer(broker: AmqpBroker, listener: Consumer) -> None:
    for exchange in EXCHANGES:
        listener.bind(exchange, "#")
    broker.check()
    assert listener.messages() == []


@pytest.mark.parametrize("threads", [2, 20])
def test_many_threads_publish_at_once_each_in_its_order(
    broker: AmqpBroker, listener: Consumer, threads: int
) -> None:
    listener.bind("task-pending", "#")

    def publish(name: int) -> None:
        for number in range(20):
            broker.publish([event("task-pending", f"{name}.{number}")])

    running = [threading.Thread(target=publish, args=(name,)) for name in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    arrived = keys(listener.messages())
    for name in range(threads):
        assert [one for one in arrived if one.startswith(f"{name}.")] == [f"{name}.{n}" for n in range(20)]


def test_twenty_callers_share_eight_connections(
    network: Network, project: str, connected: Callable[..., AmqpBroker]
) -> None:
    broker = connected(network.url, project)
    running = [
        threading.Thread(target=lambda: [broker.publish([event()]) for _ in range(5)]) for _ in range(20)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert 1 <= network.connections <= 8


def test_a_connection_is_kept_for_the_next_caller(
    network: Network, project: str, connected: Callable[..., AmqpBroker]
) -> None:
    broker = connected(network.url, project)
    broker.check()
    for _ in range(3):
        broker.publish([event()])
    assert network.connections == 1


def test_a_confirm_that_never_comes_means_that_the_broker_is_away(
    network: Network, project: str, connected: Callable[..., AmqpBroker], listener: Consumer
) -> None:
    listener.bind("task-pending", "#")
    broker = connected(network.url, project, SHORT)
    broker.publish([event("task-pending", "first")])
    network.swallows.set()
    with pytest.raises(BrokerAway, match=r"confirmed within 2 s|timed out"):
        broker.publish([event("task-pending", "unsure")])
    network.swallows.clear()
    broker.publish([event("task-pending", "last")])
    assert keys(listener.messages()) == ["first", "unsure", "last"], "it had arrived nevertheless"
    assert network.connections == 2, "the connection with an answer outstanding is not used again"


def test_a_broker_that_accepts_and_says_nothing_is_away(
    network: Network, project: str, connected: Callable[..., AmqpBroker]
) -> None:
    network.swallows.set()
    broker = connected(network.url, project, SHORT)
    for act in (broker.check, lambda: broker.follow(None, "#")):
        with pytest.raises(BrokerAway):
            act()


def test_a_broker_that_is_not_there_is_away(connected: Callable[..., AmqpBroker]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(BrokerAway, match="Connection refused"):
        connected(f"amqp://127.0.0.1:{port}", "project").check()


def full_queue(listener: Consumer, project: str, broker: AmqpBroker) -> str:
    """The name of a queue that takes no further ``task-failed``: RabbitMQ then rejects it."""
    full = listener.channel.queue_declare(
        exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    ).queue
    listener.channel.queue_bind(full, full_name(project, "task-failed"), "#")
    broker.publish([event("task-failed")])
    return str(full)


def test_a_message_that_the_broker_rejects_means_that_it_is_away(
    broker: AmqpBroker, listener: Consumer, project: str
) -> None:
    broker.check()
    full = full_queue(listener, project, broker)
    with pytest.raises(BrokerAway, match="it has rejected a message"):
        broker.publish([event("task-failed")])
    assert len(listener.messages(full)) == 1
    broker.publish([event("task-failed")])


def test_an_exchange_that_somebody_removes_is_made_again(
    broker: AmqpBroker, listener: Consumer, project: str
) -> None:
    broker.check()
    listener.channel.exchange_delete(full_name(project, "task-failed"))
    with pytest.raises(BrokerAway, match="no exchange"):
        broker.publish([event("task-failed")])
    broker.publish([event("task-failed")])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda url: re.sub(r"//\S+@", "//guest:hunter2secret@", url), "ACCESS_REFUSED"),
        (
            lambda url: re.sub(r"/[^/]*$", "/nowhere", url),
            "nowhere not found|access to vhost 'nowhere' refused",
        ),
    ],
    ids=["a wrong password", "a vhost that is not there"],
)
def test_a_broker_that_refuses_us_is_away_and_the_log_says_once_why(
    rabbitmq: RabbitMQ,
    connected: Callable[..., AmqpBroker],
    change: Callable[[str], str],
    told: str,
) -> None:
    url = change(rabbitmq.url)
    broker = connected(url, "project")
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(BrokerAway, match=told) as refused:
                broker.check()
    [line] = logs
    assert (line["event"], line["log_level"]) == ("broker-failed", "error")
    assert re.search(told, line["why"])
    for said in (str(line), str(refused.value)):
        assert "hunter2" not in said
        assert "amqp://" not in said


def test_the_log_says_that_the_broker_fails_when_it_begins_to_and_then_once_a_minute(
    network: Network, project: str, connected: Callable[..., AmqpBroker], listener: Consumer
) -> None:
    now = 0.0
    broker = connected(network.url, project, LONG, lambda: now)
    broker.check()
    full_queue(listener, project, broker)

    def lines(after: float = 0) -> list[str]:
        """What the log says as an event is refused, so long after the last one."""
        nonlocal now
        now += after
        with capture_logs() as logs, pytest.raises(BrokerAway):
            broker.publish([event("task-failed")])
        assert {(line["event"], line["log_level"]) for line in logs} <= {("broker-failed", "warning")}
        return [line["why"] for line in logs]

    assert len(lines()) == 1
    assert lines(59.9) == []
    assert len(lines(0.1)) == 1, "a minute is over"
    with broker._link():  # this one succeeds, and began before the next one fails
        assert lines() == []
    assert lines() == []
    broker.check()
    assert len(lines()) == 1, "it has answered meanwhile"
    network.close()
    assert lines() == [], "another reason is no other state"
    [why] = lines(60)
    assert "refused" in why


def test_an_exchange_of_another_kind_is_told_in_the_log(
    broker: AmqpBroker, listener: Consumer, project: str
) -> None:
    listener.channel.exchange_declare(full_name(project, "task-failed"), "fanout", durable=True)
    with capture_logs() as logs, pytest.raises(BrokerAway):
        broker.publish([event()])
    [line] = logs
    assert line["log_level"] == "error"
    assert "inequivalent arg 'type' for exchange" in line["why"]
    listener.channel.exchange_delete(full_name(project, "task-failed"))
    broker.publish([event()])


def test_follow_yields_what_matches_from_now_on(broker: AmqpBroker) -> None:
    broker.publish([event("task-pending", "primary.before")])
    following = broker.follow("task-pending", "primary.*.#")
    sent = [
        event("task-pending", "primary.a.b", "one", "two", runId=1),
        event("task-pending", "primary"),
        event("task-running", "primary.a"),
        event("task-pending", "primary.c"),
    ]
    broker.publish(sent)
    assert followed(following, 2) == [sent[0], sent[3]]
    following.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("#", [0, 1, 2]), ("route.one", [1]), ("route.#", [1, 2]), ("primary.*.0", [0]), ("primary.task", [])],
)
def test_follow_all_exchanges(broker: AmqpBroker, pattern: str, expected: list[int]) -> None:
    following = broker.follow(None, pattern)
    sent = [
        event("task-defined", "primary.task.0"),
        event("task-exception", "primary.task.1", "one"),
        event("task-group-resolved", "primary.group", "two.three"),
    ]
    broker.publish(sent)
    assert followed(following, len(expected)) == [sent[index] for index in expected]
    assert next(following) is None
    following.close()  # type: ignore[attr-defined]


def test_follow_passes_over_what_is_no_event(broker: AmqpBroker, listener: Consumer, project: str) -> None:
    following = broker.follow("task-pending", "#")
    for body in ("not JSON", "[1]"):
        message = listener.channel.prepare_message(body, content_encoding="utf-8")
        listener.channel.basic_publish(message, full_name(project, "task-pending"), "primary.x")
    broker.publish([event("task-pending", "primary.event")])
    assert [one.routing_key for one in followed(following, 1)] == ["primary.event"]
    following.close()  # type: ignore[attr-defined]


def test_a_follower_that_is_closed_leaves_no_queue_behind(
    broker: AmqpBroker, listener: Consumer, project: str
) -> None:
    following = broker.follow("task-failed", "#")
    following.close()  # type: ignore[attr-defined]
    # refused while anything is bound to it
    listener.channel.exchange_delete(full_name(project, "task-failed"), if_unused=True)


def test_the_broker_is_stopped_and_started_in_the_middle(
    own: RabbitMQ, connected: Callable[..., AmqpBroker]
) -> None:
    broker = connected(own.url, "stopped")
    broker.publish([event("task-pending", "unread")])
    with consumer(own.url, "stopped") as before:
        before.channel.queue_declare("kept", durable=True, auto_delete=False)
        before.channel.queue_bind("kept", full_name("stopped", "task-pending"), "#")
    broker.publish([event("task-pending", "before")])
    following = broker.follow(None, "#")
    own.stop()
    for act in (lambda: broker.publish([event()]), broker.check, lambda: followed(following, 1)):
        with pytest.raises(BrokerAway):
            act()
    own.start()
    broker.publish([event("task-pending", "after")])
    with consumer(own.url, "stopped") as after:
        assert keys(after.messages("kept")) == ["before", "after"]


def test_a_restart_between_two_messages_is_not_even_noticed(
    own: RabbitMQ, connected: Callable[..., AmqpBroker]
) -> None:
    broker = connected(own.url, "restarted")
    broker.publish([event()])
    own.restart()
    broker.publish([event()])


def test_a_blocked_broker_is_away_until_it_takes_messages_again(
    tmp_path: Path, rabbitmq_home: Path, connected: Callable[..., AmqpBroker]
) -> None:
    with RabbitMQ(tmp_path, rabbitmq_home) as running:
        broker = connected(running.url, "blocked")
        broker.publish([event()])
    with RabbitMQ(tmp_path, rabbitmq_home, settings={"disk_free_limit.absolute": "1000000GB"}) as blocked:
        assert blocked.url == running.url
        for act in (lambda: broker.publish([event()]), broker.check):
            with pytest.raises(BrokerAway, match="it is short of memory or disk"):
                act()
    with RabbitMQ(tmp_path, rabbitmq_home):
        broker.check()
        broker.publish([event()])


def test_a_broker_that_hangs_is_away_and_its_connection_is_not_used_again(
    own: RabbitMQ, connected: Callable[..., AmqpBroker]
) -> None:
    broker = connected(own.url, "hanging", SHORT)
    broker.publish([event()])
    assert own.pid is not None
    os.kill(own.pid, signal.SIGSTOP)
    threads = list(Path(f"/proc/{own.pid}/task").iterdir())
    try:
        assert eventually(lambda: all(") T " in (thread / "stat").read_text() for thread in threads))
        for _ in range(2):
            with pytest.raises(BrokerAway):
                broker.publish([event()])
    finally:
        os.kill(own.pid, signal.SIGCONT)
    connected(own.url, "hanging").publish([event()])  # with patience: it has things to do
    broker.publish([event()])


def test_greenlets_publish_and_follow_at_once(rabbitmq: RabbitMQ, project: str) -> None:
    command = [sys.executable, "-W", "error", "-c", UNDER_GEVENT, rabbitmq.url, project]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (told.stdout, told.stderr) == ("all of them, in order\n", "")


def a_certificate(folder: Path) -> Path:
    """A file with a key and a certificate of its own for 127.0.0.1 and localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "localhost.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_amqps_is_used_only_with_a_broker_that_proves_who_it_is(
    tmp_path: Path,
    rabbitmq_home: Path,
    connected: Callable[..., AmqpBroker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate = a_certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        **{f"ssl_options.{name}": str(certificate) for name in ("cacertfile", "certfile", "keyfile")},
    }
    with RabbitMQ(tmp_path / "data", rabbitmq_home, settings=settings):
        with capture_logs() as logs, pytest.raises(BrokerAway, match="CERTIFICATE_VERIFY_FAILED"):
            connected(f"amqps://localhost:{port}", "tls").check()
        assert [line["log_level"] for line in logs] == ["error"]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        broker = connected(f"amqps://localhost:{port}", "tls")
        broker.check()
        broker.publish([event(), event(text="x" * 500_000)])
        following = broker.follow("task-failed", "#")
        broker.publish([event("task-failed")])
        assert followed(following, 1) == [event("task-failed")]
        assert next(following) is None
        following.close()  # type: ignore[attr-defined]


def test_a_server_without_a_broker_does_not_wait_for_kombu_to_load() -> None:
    code = "import legacy_queue.cli.serve, legacy_queue.cli.up, sys; print('kombu' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
