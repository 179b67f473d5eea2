"""The events of each call over HTTP, at consumers of a real broker that are bound by patterns."""

from collections.abc import Callable, Iterator

import pytest
import requests

from legacy_queue.local_processes.azurite import Azurite
from tests.adapters.amqp_side import full_name
from tests.clients.python import taskcluster
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import Json, Queue, definition, slugid
from .listeners import Listener, Reference, listening
from .processes import LONG, serve, wait_until

TYPE = "published"


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite, rabbitmq: RabbitMQ) -> Iterator[Queue]:
    """A server with the claim timeout of 20 minutes: no timer acts in these tests."""
    with serve(tmp_path_factory.mktemp("events"), env=on_account(azurite, rabbitmq.url)) as server:
        yield as_root(server)


@pytest.fixture(scope="module")
def reference(queue: Queue) -> Reference:
    return Reference(queue.server.root_url)


@pytest.fixture(scope="module")
def everything(queue: Queue, rabbitmq: RabbitMQ) -> Iterator[Listener]:
    with listening(rabbitmq.url, queue.server.root_url) as listener:

        def publishes() -> bool:
            """A new server stores events until the older ones are published."""
            return bool(listener.received([task_id := queue.create(definition("early"))])[task_id])

        wait_until(publishes)
        yield listener


@pytest.fixture
def listener(rabbitmq: RabbitMQ, reference: Reference) -> Iterator[Listener]:
    """A listener of the test's own, without a binding."""
    listener = Listener(rabbitmq.url, reference)
    yield listener
    listener.close()


def claimed(queue: Queue, task_id: str, run_id: int = 0, worker: str = "one") -> Queue:
    """The queue as the holder of the claim sees it."""
    claim = queue.claim_by_name(task_id, run_id, worker)
    assert claim.status_code == 200, claim.text
    return queue.with_credentials(claim.json()["credentials"])


def report(queue: Queue, task_id: str, run_id: int, verb: str, body: Json | None = None) -> None:
    answer = queue.on_run((task_id, run_id), verb, body)
    assert answer.status_code == 200, answer.text


def failed(queue: Queue, task_id: str) -> None:
    queue.create(definition(TYPE, schedulerId="scheduler", taskGroupId=slugid()), task_id)
    report(claimed(queue, task_id), task_id, 0, "failed")


def retried(queue: Queue, task_id: str) -> None:
    queue.create(definition(TYPE, retries=1), task_id)
    report(claimed(queue, task_id), task_id, 0, "exception", {"reason": "worker-shutdown"})
    report(claimed(queue, task_id, 1, "two"), task_id, 1, "exception", {"reason": "intermittent-task"})


def scheduled_and_run_again(queue: Queue, task_id: str) -> None:
    queue.ask("POST", f"/task/{task_id}/define", definition(TYPE))
    queue.ask("POST", f"/task/{task_id}/schedule")
    report(claimed(queue, task_id), task_id, 0, "completed")
    wait_until(lambda: queue.status(task_id)["state"] == "completed")
    queue.ask("POST", f"/task/{task_id}/rerun")
    report(claimed(queue, task_id, 1, "two"), task_id, 1, "failed")


# the calls of a task's life, and its events in order
LIVES: dict[Callable[[Queue, str], None], list[str]] = {
    failed: ["defined", "pending 0", "running 0 one", "failed 0 one"],
    retried: [
        *("defined", "pending 0", "running 0 one", "pending 1"),
        *("running 1 two", "exception 1 two intermittent-task"),
    ],
    scheduled_and_run_again: [
        *("defined", "pending 0", "running 0 one", "completed 0 one"),
        *("pending 1", "running 1 two", "failed 1 two"),
    ],
}


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_each_change_is_published_once_in_order_and_as_documented(
    queue: Queue, everything: Listener, life: Callable[[Queue, str], None]
) -> None:
    task_id = slugid()
    life(queue, task_id)
    events = [line for line in everything.received([task_id])[task_id] if line != "group-resolved"]
    assert events == LIVES[life], "confirmed before the call was answered"
    group_id = queue.status(task_id)["taskGroupId"]
    wait_until(lambda: "group-resolved" in everything.received([group_id])[group_id])


def test_a_consumer_gets_the_events_that_the_python_client_binds(queue: Queue, listener: Listener) -> None:
    group_id, worker = slugid(), "watched"
    exchanges = taskcluster.QueueEvents()
    for binding in (
        exchanges.taskRunning({"workerId": worker, "provisionerId": "system"}),
        exchanges.taskFailed({"schedulerId": "scheduler", "taskGroupId": group_id}),
        exchanges.taskGroupResolved({"taskGroupId": group_id}),
    ):
        name = binding["exchange"].removeprefix("exchange/taskcluster-queue/v1/")
        listener.bind(name, binding["routingKeyPattern"])
    failed(queue, slugid())
    task_id = queue.create(definition(TYPE, schedulerId="scheduler", taskGroupId=group_id))
    report(claimed(queue, task_id, worker=worker), task_id, 0, "failed")
    wait_until(lambda: len(listener.read()) == 3)
    assert [str(event) for event in listener.all] == [
        "running 0 watched",
        "failed 0 watched",
        "group-resolved",
    ]


def test_all_eleven_exchanges_are_durable_topics(
    queue: Queue, listener: Listener, reference: Reference
) -> None:
    queue.create(definition(TYPE))
    for name in reference.names:
        exchange = full_name(reference.project, name)
        listener.channel.exchange_declare(exchange, "topic", passive=True)
        # refused if it is not durable
        listener.channel.exchange_declare(exchange, "topic", durable=True, auto_delete=False)
    assert len(reference.names) == 11


def test_a_server_with_a_broker_also_streams_its_events(queue: Queue) -> None:
    query = {"routingKey": "route.followed", "exchange": "task-pending"}
    with requests.get(f"{queue.server.root_url}/events", params=query, stream=True, timeout=LONG) as answer:
        lines = (line.decode() for line in answer.iter_lines(chunk_size=None) if line)
        assert next(lines).startswith("retry: ")
        queue.create(definition(TYPE))
        task_id = queue.create(definition(TYPE, routes=["followed"]))
        assert next(lines) == "event: task-pending"
        assert f'"routingKey":"primary.{task_id}.0.' in next(lines)
