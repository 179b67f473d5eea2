"""Workers of each generation as threads that know nothing but HTTP, and what became of their tasks."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from .http_queue import Json, Message, Queue, definition, delete, slugid
from .processes import wait_until

GROUP = "plain"  # of these workers
PRIORITIES = ("highest", "high", "medium", "lowest")
COMPLETED = ("completed", "completed")
PROTOCOLS = ("draft", "deployed", "claimwork")
POLL_INTERVAL = 0.5  # seconds between two looks where there was no work


@dataclass
class HttpWorker:
    """One worker of ``system/<worker_type>``; ``claims`` are those that it was given, oldest first."""

    queue: Queue
    worker_type: str
    worker_id: str
    protocol: str  # one of PROTOCOLS
    claims: list[Json] = field(default_factory=list)
    _urls: list[Json] = field(default_factory=list)

    def claim(self) -> Json | None:
        """A claim, None where there is no work now."""
        found = self._by_work() if self.protocol == "claimwork" else self._by_polling()
        if found:
            self.queue.with_credentials(found["credentials"])
            self.claims.append(found)
        return found

    def claim_until_there_is(self) -> Json:
        return dict(wait_until(self.claim))

    def finish(self, claim: Json) -> None:
        """Reclaim and complete, with the credentials of the claim."""
        assert self.report(claim, "reclaim") == 200
        assert self.report(claim, "completed") == 200

    def report(self, claim: Json, verb: str, body: Json | None = None) -> int:
        run = claim["status"]["taskId"], claim["runId"]
        return self.queue.with_credentials(claim["credentials"]).on_run(run, verb, body).status_code

    def _by_work(self) -> Json | None:
        body = {"workerGroup": GROUP, "workerId": self.worker_id}
        tasks = self.queue.ask("POST", f"/claim-work/system/{self.worker_type}", body)["tasks"]
        return dict(tasks[0]) if tasks else None

    def _by_polling(self) -> Json | None:
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
            # 404 where the queue has taken the message away: the task has ended
            assert delete(urls, message) in (204, 404)
        return dict(answer.json()) if answer.status_code == 200 else None


InHand = Callable[[HttpWorker, Json], object]


def work_through(worker: HttpWorker, in_hand: InHand, is_over: threading.Event) -> None:
    """Claim and complete until it is over; ``in_hand`` is called with each claim."""
    while not is_over.is_set():
        if claim := worker.claim():
            in_hand(worker, claim)
            worker.finish(claim)
        else:
            is_over.wait(POLL_INTERVAL)


@contextmanager
def at_work(workers: Iterable[HttpWorker], in_hand: InHand = lambda *_: None) -> Iterator[Callable[[], None]]:
    """They work while the context lasts. What it gives, called, raises what any of them has raised."""
    is_over = threading.Event()
    workers = list(workers)
    with ThreadPoolExecutor(len(workers)) as pool:
        at_work = [pool.submit(work_through, worker, in_hand, is_over) for worker in workers]

        def check() -> None:
            for one in at_work:
                if one.done():
                    one.result()

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
    open: list[str] = field(default_factory=list)  # tasks that were not completed when somebody looked

    def create(self, count: int) -> list[str]:
        """So many tasks, in turn of each of the priorities."""

        def one(number: int) -> str:
            priority = PRIORITIES[number % len(PRIORITIES)]
            task = definition(
                self.worker_type, priority=priority, taskGroupId=self.group, schedulerId="scheduler"
            )
            return self.queue.create(task)

        with ThreadPoolExecutor(4) as pool:
            created = list(pool.map(one, range(count)))
        self.open += created
        return created

    def statuses(self) -> list[Json]:
        listed = self.queue.ask("GET", f"/task-group/{self.group}/list")
        return [one["status"] for one in listed["tasks"]]

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
    """Until all tasks of the works are completed; ``check`` raises what went wrong with a worker."""

    def is_over() -> bool:
        check()
        if all(work.is_completed() for work in works):
            return True
        time.sleep(POLL_INTERVAL)
        return False

    wait_until(is_over)


def claimed_by(workers: Sequence[HttpWorker]) -> list[tuple[str, int, str]]:
    """taskId, runId and workerId of each claim, in order."""
    return sorted(
        (claim["status"]["taskId"], claim["runId"], worker.worker_id)
        for worker in workers
        for claim in worker.claims
    )
