"""A broker stops and returns: calls go on, and all events arrive in the end, in order."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from legacy_queue.local_processes.azurite import Azurite
from tests.adapters.amqp_side import consumer, full_name
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import Queue, definition, slugid
from .listeners import Listener, ReceivedEvent, Reference
from .processes import LONG, processes_of, serve

TYPE = "lasting"
HALF = ["defined", "pending 0", "running 0 one", "pending 1"]
WHOLE = [*HALF, "running 1 two", "completed 1 two", "group-resolved"]
CANCELED = ["defined", "pending 0", "running 0 one", "exception 0 one canceled", "group-resolved"]


@dataclass(frozen=True)
class Consumers:
    """Consumers of one durable queue, one after the other: the broker restarts between them."""

    url: str
    reference: Reference
    events: list[ReceivedEvent]

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        listener = Listener(self.url, self.reference, self.reference.project)
        listener.all = self.events
        try:
            yield listener
        finally:
            listener.close()


def test_consumers_can_bind_once_a_server_is_ready_and_a_wrong_url_is_said(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    project = "bound-before-an-event"
    env = {"LEGACY_QUEUE_AMQP_URL": rabbitmq.url, "LEGACY_QUEUE_PROJECT": project}
    with serve(tmp_path / "right", env=env) as server, consumer(rabbitmq.url, project) as bound:
        for name in Reference(server.root_url).names:
            bound.channel.queue_bind(bound.queue, full_name(project, name), "#")
        bound.clean_up()
    env["LEGACY_QUEUE_AMQP_URL"] = re.sub("//.*@", "//guest:not-the-password@", rabbitmq.url)
    with serve(tmp_path / "wrong", env=env) as server:
        ready = requests.get(f"{server.root_url}/ready", timeout=LONG).json()
        assert ready["broker"].startswith("AccessRefused")
        assert "ACCESS_REFUSED" in server.errors


def begin(queue: Queue, task_id: str) -> None:
    queue.create(definition(TYPE), task_id)
    report(queue, task_id, 0, "one", "exception", reason="worker-shutdown")


def end(queue: Queue, task_id: str) -> None:
    report(queue, task_id, 1, "two", "completed")


def report(queue: Queue, task_id: str, run_id: int, worker: str, verb: str, **body: str) -> None:
    claim = queue.claim_by_name(task_id, run_id, worker)
    assert claim.status_code == 200, claim.text
    holder = queue.with_credentials(claim.json()["credentials"])
    answer = holder.on_run((task_id, run_id), verb, body or None)
    assert answer.status_code == 200, answer.text


@pytest.mark.timeout(600)  # it starts a broker twice and four servers
def test_events_of_calls_without_a_broker_arrive_in_order_when_it_is_back_whatever_became_of_their_server(
    tmp_path: Path, azurite: Azurite, rabbitmq_home: Path
) -> None:
    broker = RabbitMQ(tmp_path / "broker", rabbitmq_home).start()
    before = [slugid() for _ in range(6)]
    meanwhile = [slugid() for _ in range(6)]
    canceled = slugid()
    env = on_account(azurite, broker.url)
    env_of_killed = on_account(azurite, broker.url)
    try:
        with (
            serve(tmp_path / "frozen", env=env) as frozen,
            serve(tmp_path / "other", env=env) as other,
            serve(tmp_path / "killed", "--workers", "2", env=env_of_killed) as killed,
            ThreadPoolExecutor(6) as pool,
            ExitStack() as thaw,
        ):
            queues = [as_root(frozen), as_root(killed)]
            consumers = [Consumers(broker.url, Reference(queue.server.root_url), []) for queue in queues]
            for each in consumers:
                with each.listening() as listener:
                    listener.bind_to_all("primary.#")
            as_root(other).create(definition(TYPE), canceled)
            list(pool.map(begin, queues * 3, before))
            broker.stop()
            list(pool.map(end, queues * 3, before))
            list(pool.map(begin, queues * 3, meanwhile))
            assert queues[0].claim_by_name(canceled, 0).status_code == 200
            killed.kill()
            # it can publish the claim only after the other server has canceled the task
            os.killpg(frozen.process.pid, signal.SIGSTOP)
            broker = RabbitMQ(tmp_path / "broker", rabbitmq_home).start()
            as_root(other).ask("POST", f"/task/{canceled}/cancel")
            # its arbiter would take a worker for hung that was frozen for long
            for pid in {*processes_of(frozen.data_dir)} - {frozen.process.pid}:
                os.kill(pid, signal.SIGCONT)
            thaw.callback(os.killpg, frozen.process.pid, signal.SIGCONT)
            with serve(tmp_path / "next", env=env_of_killed):
                for number, each in enumerate(consumers):
                    expected = dict.fromkeys(before[number::2], WHOLE)
                    expected |= dict.fromkeys(meanwhile[number::2], HALF)
                    expected |= {} if number else {canceled: CANCELED}
                    with each.listening() as listener:
                        listener.wait_for(expected, may_repeat=True)
    finally:
        broker.stop()
