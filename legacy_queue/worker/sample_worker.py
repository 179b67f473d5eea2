"""The worker's loop: find work by one of the three protocols, claim it, run it, and start again."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event, Lock

from legacy_queue.worker.queue_client import Claim, PolledMessage, QueueClient, Refused, Unavailable, run_path
from legacy_queue.worker.task_run import TaskRun
from legacy_queue.worker.worker_settings import WorkerSettings

PAUSE = 1.0  # seconds to wait when there was no work


class SampleWorker:
    """A worker that runs up to ``capacity`` tasks concurrently, each in its own thread.

    It calls ``on_step`` from any thread, with the name of each step and its fields. None of them is secret.
    """

    def __init__(self, settings: WorkerSettings, on_step: Callable[..., None]) -> None:
        self._settings = settings
        self._notify = on_step
        self._stopping = Event()
        self._finding = Lock()  # only one thread may claim at a time
        self._client = QueueClient(settings, give_up=self._stopping)
        self._queues: Sequence[Mapping[str, str]] = ()  # the signed URLs of the pool's queues
        self._refresh_at = datetime.now(UTC)
        self._running = set[str]()
        self._started = 0

    def run(self) -> None:
        """Work until ``stop`` is called or ``max_tasks`` are done, then wait for the running tasks.

        If the queue refuses this worker, it waits for the running tasks and then raises Refused.
        """
        with ThreadPoolExecutor(self._settings.capacity) as threads:
            for ended in [threads.submit(self._work) for _ in range(self._settings.capacity)]:
                ended.result()

    def stop(self) -> None:
        """Stop claiming, and end the running tasks as worker-shutdown. Does not wait for that."""
        self._stopping.set()

    def _work(self) -> None:
        while claim := self._next_claim():
            notify = partial(self._notify, task_id=claim["status"]["taskId"], run_id=claim["runId"])
            notify("claim", taken_until=claim["takenUntil"])
            # never set, because the worker reports even after a stop
            client = QueueClient(self._settings, give_up=Event())
            try:
                TaskRun(client, claim, notify, self._stopping, self._finding).run()
            except Exception as error:  # noqa: BLE001  this claim expires, other tasks go on
                notify("failure", detail=f"{type(error).__name__}: {error}")
            self._running.remove(run_path(claim))

    def _next_claim(self) -> Claim | None:
        """Return a claim to start with, or None if the worker must not claim any more."""
        with self._finding:
            while self._started != self._settings.max_tasks and not self._stopping.is_set():
                try:
                    is_polling = self._settings.protocol != "claimwork"
                    claim = self._poll() if is_polling else self._client.claim_work()
                except Unavailable as failure:
                    claim = None
                    self._notify("failure", detail=str(failure))
                if claim and run_path(claim) not in self._running:  # otherwise the message was a duplicate
                    self._running.add(run_path(claim))
                    self._started += 1
                    return claim
                self._stopping.wait(PAUSE)
        return None

    def _poll(self) -> Claim | None:
        """Poll the queues, highest priority first, until a task is claimed."""
        now = datetime.now(UTC)
        if now >= self._refresh_at:
            self._queues, expires = self._client.poll_task_urls()
            # five minutes before the URLs expire, or half-way if that is later
            self._refresh_at = expires - min(timedelta(minutes=5), (expires - now) / 2)
            self._notify("poll-urls", queues=len(self._queues), expires=expires)
        for number, urls in enumerate(self._queues, start=1):
            try:
                while not self._stopping.is_set() and (message := self._client.poll(urls)):
                    self._notify("poll", queue=number, messages=1)
                    if claim := self._claim(urls, message):
                        return claim
            except Refused as refused:  # only new URLs can help
                self._refresh_at = now
                self._notify("failure", detail=str(refused))
        return None

    def _claim(self, urls: Mapping[str, str], message: PolledMessage) -> Claim | None:
        """Claim the task that a message names. Returns None if the queue refuses.

        In the draft protocol the queue holds the message, and the worker never deletes it. In the deployed
        protocol the worker deletes the message after the claim, also after a refused one (the task is
        missing, not scheduled or already claimed). If the queue does not answer, the worker keeps the
        message.
        """
        is_draft = self._settings.protocol == "draft"
        claim = None
        try:
            claim = self._client.claim_task(message, message.proof if is_draft else {})
        except Refused as refused:
            self._notify("failure", message_id=message.message_id, detail=str(refused))
        try:
            if not is_draft:
                self._client.delete(urls, message)
        except (Refused, Unavailable) as failure:
            self._notify("failure", message_id=message.message_id, detail=str(failure))
        return claim
