"""Workers of all three generations on one queue, and a fleet that is moved from one to another and back."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from legacy_queue.adapters.azurite import Azurite

from .accounts import as_root, on_account
from .conftest import STORAGES
from .fleet import COMPLETED, PROTOCOLS, HttpWorker, Work, at_work, claimed_by, wait_for_completion
from .http_queue import Json, Queue
from .processes import LONG, WorkerProcess, serve, wait_until, work

TASKS = 36
SEVERAL = 3  # plain workers of each protocol
BRIEF = ("--claim-work-wait", "1s")
HASTY = ("--claim-timeout", "15s", *BRIEF)


@pytest.fixture(params=["memory", "two servers on azurite"])
def queues(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sequence[Queue]]:
    """The queue at each of its servers."""
    with ExitStack() as stack:
        if request.param == "memory":
            server = stack.enter_context(serve(tmp_path / "server", "--storage", "memory", *BRIEF))
            yield [Queue(server)]
            return
        azurite: Azurite = request.getfixturevalue("azurite")
        env = on_account(azurite)
        yield [
            as_root(stack.enter_context(serve(tmp_path / name, *BRIEF, env=env))) for name in ("one", "other")
        ]


def test_a_mixed_fleet_runs_each_task_once_and_leaves_nothing(
    queues: Sequence[Queue], worker_type: str, tmp_path: Path
) -> None:
    workers = [
        HttpWorker(queues[number % len(queues)], worker_type, f"{protocol}-{number}", protocol)
        for protocol in PROTOCOLS
        for number in range(SEVERAL)
    ]
    all_at_work = threading.Barrier(len(workers) + 1)
    work_of_all = Work(queues[0], worker_type)

    def in_hand(worker: HttpWorker, claim: Json) -> None:
        """Nobody goes on before each has had one in hand, and nobody else gets it."""
        if len(worker.claims) == 1:
            all_at_work.wait(LONG)
        rival = queues[-1].claim_by_name(claim["status"]["taskId"], claim["runId"], "rival")
        assert rival.status_code == 409

    with sample_workers(queues[-1], worker_type, tmp_path) as samples:
        with at_work(workers, in_hand) as check:
            tasks = work_of_all.create(TASKS)
            for sample in samples:
                sample.wait_for("claim")
            all_at_work.wait(LONG)
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
    """``legacy-queue worker`` for each protocol, all of them looking for work."""
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
IN_FLIGHT = 3  # tasks of each protocol's worker when the fleet is moved


@dataclass
class Move:
    """A fleet on a worker type of its own, moved from some protocols to others with tasks in flight."""

    queue: Queue
    worker_type: str
    before: Sequence[str]
    after: Sequence[str]

    def __post_init__(self) -> None:
        self.work = Work(self.queue, self.worker_type)
        self.old, self.new = (
            [
                HttpWorker(self.queue, self.worker_type, f"{protocol}-{number}", protocol)
                for protocol in protocols
                for number in range(2)
            ]
            for protocols in (self.before, self.after)
        )
        self.ended: dict[str, tuple[str, str]] = {}  # how run 0 of a task does, if not completed

    def begin(self) -> None:
        """The old workers have tasks in flight, others wait."""
        self.work.create(IN_FLIGHT * len(self.old) + 8)
        for worker in self.old:
            for _ in range(IN_FLIGHT):
                worker.claim_until_there_is()

    def stop_old(self) -> None:
        """Each of them completes one task, gives one back, and dies with the others."""
        for worker in self.old:
            done, given_back, *held = worker.claims
            worker.finish(done)
            assert worker.report(given_back, "exception", {"reason": "worker-shutdown"}) == 200
            self._ends([given_back], "worker-shutdown")
            self._ends(held, "claim-expired")

    def _ends(self, claims: Sequence[Json], reason: str) -> None:
        self.ended |= {claim["status"]["taskId"]: ("exception", reason) for claim in claims}

    def check(self) -> None:
        """All is completed, retries were spent on what was lost alone, and who died cannot come back."""
        statuses = self.work.statuses()
        runs = self.work.runs()
        assert runs == {
            task_id: [self.ended[task_id], COMPLETED] if task_id in self.ended else [COMPLETED]
            for task_id in runs
        }
        assert [status["retriesLeft"] for status in statuses] == [
            4 if status["taskId"] in self.ended else 5 for status in statuses
        ]
        ran = sorted(
            (status["taskId"], run["runId"], run["workerId"]) for status in statuses for run in status["runs"]
        )
        assert ran == claimed_by([*self.old, *self.new])
        for worker in self.old:
            lost = worker.claims[-1]
            assert [worker.report(lost, verb) for verb in ("reclaim", "completed", "failed")] == [409] * 3
        assert self.queue.pending(self.worker_type) == 0


@pytest.mark.parametrize("storage", STORAGES)
def test_a_fleet_is_moved_to_claim_work_and_back_with_tasks_in_flight(tmp_path: Path, storage: str) -> None:
    with serve(tmp_path, "--storage", storage, *HASTY) as server:
        queue = Queue(server)
        moves = [Move(queue, "there", OLD, NEW), Move(queue, "back", NEW, OLD)]
        for move in moves:
            move.begin()
            with at_work(move.new):
                move.stop_old()
        with at_work([worker for move in moves for worker in move.new]) as check:
            wait_for_completion(check, *(move.work for move in moves))
        for move in moves:
            move.check()
