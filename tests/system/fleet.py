"""Workers of each generation as threads that use nothing but HTTP, and the ends of their tasks."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from .http_queue import Json, Message, Queue, definition, delete, slugid
from .processes import wait_until

GROUP = "http"  # of these workers
PRIORITIES = ("highest", "high", "medium", "lowest")
COMPLETED = ("completed", "completed")
PROTOCOLS = ("draft", "deployed", "claimwork")
POLL_INTERVAL = 1.0  # seconds between two polls that find nothing


@dataclass
class HttpWorker:
    """A worker of ``system/<worker_type>``; ``claims`` are all its claims, oldest first."""

    queue: Queue
    worker_type: str
    worker_id: str
    protocol: str  # one of PROTOCOLS
    claims: list[Json] = field(default_factory=list)
    _urls: list[Json] = field(default_factory=list)

    def claim(self) -> Json | None:
        """Claim a task; None if there is no work now."""
        claim = self._claim_work() if self.protocol == "claimwork" else self._poll()
        if claim:
            self.queue.with_credentials(claim["credentials"])
            self.claims.append(claim)
        return claim

    def finish(self, claim: Json) -> None:
        """Reclaim and complete, with the credentials of the claim."""
        assert self.report(claim, "reclaim") == 200
        assert self.report(claim, "completed") == 200

    def report(self, claim: Json, verb: str, body: Json | None = None) -> int:
        run = claim["status"]["taskId"], claim["runId"]
        return self.queue.with_credentials(claim["credentials"]).on_run(run, verb, body).status_code

    def _claim_work(self) -> Json | None:
        body = {"workerGroup": GROUP, "workerId": self.worker_id}
        tasks = self.queue.ask("POST", f"/claim-work/system/{self.worker_type}", body)["tasks"]
        return dict(tasks[0]) if tasks else None

    def _poll(self) -> Json | None:
        self._urls = self._urls or self.queue.poll_urls(self.worker_type)
        for urls in self._urls:
            for message in self.queue.poll_one(urls):
                if claim := self._claim(urls, message):
                    return claim
        return None

    def _claim(self, urls: Json, message: Message) -> Json | None:
        proof = message.proof if self.protocol == "draft" else {}
        body = {"workerGroup": GROUP, "workerId": self.worker_id, **proof}
        path = f"/task/{message.task_id}/runs/{message.run_id}/claim"
        answer = self.queue.send("POST", path, body)
        assert answer.status_code in (200, 409), answer.text
        if self.protocol == "deployed":
            # 404 if the task has ended: then the queue has deleted the message
            assert delete(urls, message) in (204, 404)
        return dict(answer.json()) if answer.status_code == 200 else None


OnClaim = Callable[[HttpWorker, Json], object]


def work_through(worker: HttpWorker, on_claim: OnClaim, is_over: threading.Event) -> None:
    """Claim and complete tasks until ``is_over``; calls ``on_claim`` with each claim."""
    while not is_over.is_set():
        if claim := worker.claim():
            on_claim(worker, claim)
            worker.finish(claim)
        else:
            is_over.wait(POLL_INTERVAL)


@contextmanager
def at_work(
    workers: Iterable[HttpWorker], on_claim: OnClaim = lambda *_: None
) -> Iterator[Callable[[], None]]:
    """The workers work while the context lasts. Yields a function that raises the failure of a worker."""
    is_over = threading.Event()
    workers = list(workers)
    with ThreadPoolExecutor(len(workers)) as pool:
        running = [pool.submit(work_through, worker, on_claim, is_over) for worker in workers]

        def check() -> None:
            for worker in running:
                if worker.done():
                    worker.result()

        try:
            yield check
        finally:
            is_over.set()
    check()


@dataclass
class Work:
    """Tasks of a worker type, all in one task group."""

    queue: Queue
    worker_type: str
    group: str = field(default_factory=slugid)
    open: list[str] = field(default_factory=list)  # tasks that are not known to be completed

    def create(self, count: int, command: Sequence[str] = ("true",)) -> list[str]:
        """Create ``count`` tasks, with each of the priorities in turn; a sample worker runs the command."""

        def create(number: int) -> str:
            priority = PRIORITIES[number % len(PRIORITIES)]
            more = {"taskGroupId": self.group, "schedulerId": "scheduler", "payload": {"command": command}}
            return self.queue.create(definition(self.worker_type, priority=priority, **more))

        with ThreadPoolExecutor(4) as pool:
            created = list(pool.map(create, range(count)))
        self.open += created
        return created

    def statuses(self) -> list[Json]:
        listed = self.queue.ask("GET", f"/task-group/{self.group}/list")
        return [entry["status"] for entry in listed["tasks"]]

    def is_completed(self) -> bool:
        while self.open and self.queue.status(self.open[-1])["state"] == "completed":
            self.open.pop()
        return not self.open

    def runs(self) -> dict[str, list[tuple[str, str | None]]]:
        """State and reasonResolved of each run of each task."""
        return {
            status["taskId"]: [(run["state"], run.get("reasonResolved")) for run in status["runs"]]
            for status in self.statuses()
        }


def wait_for_completion(check: Callable[[], None], *works: Work) -> None:
    """Wait until all tasks are completed; ``check`` raises the failure of a worker."""

    def are_completed() -> bool:
        check()
        if all(work.is_completed() for work in works):
            return True
        time.sleep(POLL_INTERVAL)
        return False

    wait_until(are_completed)


def claimed_by(workers: Sequence[HttpWorker]) -> list[tuple[str, int, str]]:
    """taskId, runId and workerId of each claim, in order."""
    return sorted(
        (claim["status"]["taskId"], claim["runId"], worker.worker_id)
        for worker in workers
        for claim in worker.claims
    )
