"""A broker stops and returns: calls go on, and all events arrive in the end, in order."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.http.calls import claimed
from tests.rabbitmq import RabbitMQ

from .http_queue import Queue
from .listeners import Listener
from .processes import serve

pytestmark = pytest.mark.processes


def report(queue: Queue, task_id: str, run_id: int, verb: str, **body: str) -> None:
    """Claim the run, and report it."""
    holder = claimed(queue.claim(task_id, run_id))
    queue.ask(verb, body or None, credentials=holder, taskId=task_id, runId=run_id)


def test_events_of_calls_without_a_broker_arrive_in_order_when_it_is_back(
    tmp_path: Path, rabbitmq_home: Path, worker_type: str
) -> None:
    broker = RabbitMQ(tmp_path / "broker", rabbitmq_home).start()
    try:
        with serve(tmp_path, "--workers", "2", env={"LEGACY_QUEUE_AMQP_URL": broker.url}) as server:
            queue = Queue(server)
            with closing(Listener(broker.url, "lasting")) as listener:
                listener.bind_to_all("primary.#")
            before = queue.create(workerType=worker_type)
            broker.stop()
            meanwhile = queue.create(workerType=worker_type)
            for task_id in (before, meanwhile):
                report(queue, task_id, 0, "reportException", reason="worker-shutdown")
            report(queue, before, 1, "reportCompleted")
            broker = RabbitMQ(tmp_path / "broker", rabbitmq_home).start()
            half = ["defined", "pending 0", "running 0 alice", "pending 1"]
            whole = [*half, "running 1 alice", "completed 1 alice", "group-resolved"]
            with closing(Listener(broker.url, "lasting")) as listener:
                listener.wait_for({before: whole, meanwhile: half})
    finally:
        broker.stop()
