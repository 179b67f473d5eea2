"""A broker stops and returns: calls go on, and all events arrive in the end, in order."""

import re
from contextlib import closing
from pathlib import Path

import pytest
import requests

from legacy_queue.domain.events import EXCHANGES
from tests.adapters.amqp_side import consumer, full_name
from tests.http.calls import claimed
from tests.rabbitmq import RabbitMQ

from .http_queue import Queue
from .listeners import Listener
from .processes import LONG, serve

pytestmark = pytest.mark.processes


def test_consumers_can_bind_once_a_server_is_ready_and_a_wrong_url_is_said(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    project = "bound-before-an-event"
    env = {"LEGACY_QUEUE_AMQP_URL": rabbitmq.url, "LEGACY_QUEUE_PROJECT": project}
    with serve(tmp_path / "right", env=env), consumer(rabbitmq.url, project) as bound:
        for name in EXCHANGES:
            bound.channel.queue_bind(bound.queue, full_name(project, name), "#")
        bound.clean_up()
    env["LEGACY_QUEUE_AMQP_URL"] = re.sub("//.*@", "//guest:not-the-password@", rabbitmq.url)
    with serve(tmp_path / "wrong", env=env) as server:
        ready = requests.get(f"{server.root_url}/ready", timeout=LONG).json()
        assert ready["broker"].startswith("AccessRefused")
        assert "ACCESS_REFUSED" in server.errors


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
