"""A broker stops and returns: calls go on, and all events arrive in the end, in order."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from legacy_queue.domain.events import EXCHANGES, Event
from tests.adapters.amqp_side import Consumer, Network, consumer, full_name
from tests.http.calls import claimed
from tests.http.published import check_event
from tests.rabbitmq import RabbitMQ
from tests.services.harness import published_event

from .http_queue import Queue
from .processes import serve, wait_until

pytestmark = pytest.mark.processes


def report(queue: Queue, task_id: str, run_id: int, verb: str, **body: str) -> None:
    """Claim the run, and report it."""
    holder = claimed(queue.claim(task_id, run_id))
    queue.ask(verb, body or None, credentials=holder, taskId=task_id, runId=run_id)


def wait_for(listener: Consumer, expected: dict[str, list[tuple[str, int | None]]]) -> None:
    """Wait until each of these tasks has these events, and assert their order; an event may repeat."""
    received: dict[str, list[tuple[str, int | None]]] = {task_id: [] for task_id in expected}

    def have_all_arrived() -> bool:
        for message in listener.messages():
            delivery = message.delivery_info
            name = delivery["exchange"].rpartition("/")[2]
            event = Event(name, delivery["routing_key"], (), json.loads(message.body))
            check_event(event)
            exchange, task_id, run_id = published_event(event)
            if (exchange, run_id) not in received[task_id]:
                received[task_id].append((exchange, run_id))
        return all(len(received[task_id]) >= len(events) for task_id, events in expected.items())

    with suppress(TimeoutError):
        wait_until(have_all_arrived)
    assert received == expected


def test_events_of_calls_without_a_broker_arrive_in_order_when_it_is_back(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    project, network = "away-and-back", Network(rabbitmq.url)
    env = {"LEGACY_QUEUE_AMQP_URL": network.url, "LEGACY_QUEUE_PROJECT": project}
    with serve(tmp_path, "--workers", "2", env=env) as server, consumer(rabbitmq.url, project) as listener:
        queue = Queue(server)
        for name in EXCHANGES:  # a ready server has declared them
            listener.channel.queue_bind(listener.queue, full_name(project, name), "primary.#")
        before = queue.create()
        network.close()
        meanwhile = queue.create()
        for task_id in (before, meanwhile):
            report(queue, task_id, 0, "reportException", reason="worker-shutdown")
        report(queue, before, 1, "reportCompleted")
        network = Network(rabbitmq.url, network.port)
        half = [("task-defined", None), ("task-pending", 0), ("task-running", 0), ("task-pending", 1)]
        end = [("task-running", 1), ("task-completed", 1), ("task-group-resolved", None)]
        wait_for(listener, {before: [*half, *end], meanwhile: half})
    network.close()
