"""Workers of all three generations share a queue, and a fleet changes its protocol while tasks run."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from legacy_queue.local_processes.azurite import Azurite

from .accounts import as_root, on_account
from .fleet import PROTOCOLS, HttpWorker, Work, at_work, claimed_by, wait_for_completion
from .http_queue import Json, Queue
from .processes import LONG, WorkerProcess, serve, wait_until, work

TASKS = 24
WORKERS_EACH = 2  # workers over HTTP of each protocol
SHORT_WAIT = ("--claim-work-wait", "1s")


@pytest.fixture
def queues(azurite: Azurite, tmp_path: Path) -> Iterator[Sequence[Queue]]:
    """The queue at each of two servers."""
    env = on_account(azurite)
    with (
        serve(tmp_path / "one", *SHORT_WAIT, env=env) as one,
        serve(tmp_path / "two", *SHORT_WAIT, env=env) as two,
    ):
        yield [as_root(one), as_root(two)]


def test_a_mixed_fleet_on_two_servers_runs_each_task_once_and_leaves_no_message(
    queues: Sequence[Queue], worker_type: str, tmp_path: Path
) -> None:
    workers = [
        HttpWorker(queues[number % len(queues)], worker_type, f"{protocol}-{number}", protocol)
        for protocol in PROTOCOLS
        for number in range(WORKERS_EACH)
    ]
    all_hold_a_claim = threading.Barrier(len(workers) + 1)
    work_of_all = Work(queues[0], worker_type)

    def on_claim(worker: HttpWorker, claim: Json) -> None:
        """Wait until each worker holds its first claim; another worker cannot claim the same run."""
        if len(worker.claims) == 1:
            all_hold_a_claim.wait(LONG)
        rival = queues[-1].claim_by_name(claim["status"]["taskId"], claim["runId"], "rival")
        assert rival.status_code == 409

    with sample_workers(queues[-1], worker_type, tmp_path) as samples:
        with at_work(workers, on_claim) as check:
            tasks = work_of_all.create(TASKS, ["sleep", "0.5"])  # enough for each sample worker to get one
            for sample in samples:
                sample.wait_for("claim")
            all_hold_a_claim.wait(LONG)
            wait_for_completion(check, work_of_all)
        assert [sample.end() for sample in samples] == [0] * len(samples)
        by_samples = [
            (step["task_id"], step["run_id"], f"sample-{protocol}")
            for protocol, sample in zip(PROTOCOLS, samples, strict=True)
            for step in sample.steps
            if step["event"] == "claim"
        ]
    statuses = work_of_all.statuses()
    assert {status["taskId"]: len(status["runs"]) for status in statuses} == dict.fromkeys(tasks, 1)
    assert {status["retriesLeft"] for status in statuses} == {5}
    ran = sorted((status["taskId"], 0, status["runs"][0]["workerId"]) for status in statuses)
    assert ran == sorted([*claimed_by(workers), *by_samples])
    assert {worker_id for _, _, worker_id in ran} == {
        *(worker.worker_id for worker in workers),
        *(f"sample-{protocol}" for protocol in PROTOCOLS),
    }
    wait_until(lambda: not any(queue.pending(worker_type) for queue in queues))


@contextmanager
def sample_workers(queue: Queue, worker_type: str, folder: Path) -> Iterator[list[WorkerProcess]]:
    """A ``legacy-queue worker`` of each protocol."""
    with ExitStack() as stack:
        samples = []
        for protocol in PROTOCOLS:
            options = ("--protocol", protocol, "--worker-id", f"sample-{protocol}")
            worker = work(
                folder / protocol, queue.server, worker_type, *options, credentials=queue.credentials
            )
            samples.append(stack.enter_context(worker))
        yield samples


OLD, NEW = ("draft", "deployed"), ("claimwork",)
