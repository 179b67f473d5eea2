"""Claims and deadlines end by timers, in three processes on one queue."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from legacy_queue.local_processes.azurite import Azurite
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import definition, in_time
from .listeners import listening
from .processes import SHORT_CLAIM, serve

MANY = 30
CLAIMED = ("defined", "pending 0", "running 0 one")


def test_three_processes_expire_each_of_thirty_claims_once_and_end_a_task_at_its_deadline(
    tmp_path: Path, azurite: Azurite, rabbitmq: RabbitMQ, worker_type: str
) -> None:
    options = ("--workers", "3", "--claim-timeout", f"{SHORT_CLAIM}s")
    with (
        serve(tmp_path, *options, env=on_account(azurite, rabbitmq.url)) as server,
        listening(rabbitmq.url, server.root_url) as listener,
    ):
        queue = as_root(server)
        late = queue.create(definition("missed", deadline=in_time(seconds=SHORT_CLAIM)))
        with ThreadPoolExecutor(8) as pool:
            crowd = list(pool.map(lambda _: queue.create(definition(worker_type)), range(MANY)))
            claims = list(pool.map(queue.claim, queue.poll(worker_type, 32)))
        assert [claim.status_code for claim in claims] == [200] * MANY

        listener.wait_for({task_id: [*CLAIMED, "pending 1"] for task_id in crowd})
        for task_id in crowd:
            assert queue.runs(task_id) == [("exception", "claim-expired"), ("pending", None)]
            assert queue.status(task_id)["retriesLeft"] == 4
        # each run has a single message: the held one
        polled = [message.run for message in queue.poll(worker_type, 32)]
        assert sorted(polled) == sorted((task_id, 1) for task_id in crowd)
        listener.wait_for({late: ["defined", "pending 0", "exception 0 deadline-exceeded", "group-resolved"]})
        assert queue.runs(late) == [("exception", "deadline-exceeded")]
        assert '"level": "error"' not in server.errors
