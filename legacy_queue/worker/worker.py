"""The worker's loop: poll the Azure queues in order, claim what they hold, run it.

One thread polls and claims; each task runs in a thread of its own. The two protocols differ in what is
sent with a claim and in who takes the message away afterwards, and in nothing else.
"""

import threading
from typing import Any

from legacy_queue.worker.azure_queue import (
    MAX_MESSAGES,
    AzureQueue,
    DeleteFailed,
    Message,
    MessageUnreadable,
    PollRefused,
    Work,
)
from legacy_queue.worker.clock import Clock
from legacy_queue.worker.command import Output
from legacy_queue.worker.http import Http, Unavailable
from legacy_queue.worker.queue_client import Claim, PollUrls, QueueClient, QueueRefused
from legacy_queue.worker.settings import Protocol, WorkerSettings
from legacy_queue.worker.steps import OnStep, Step, log_step
from legacy_queue.worker.task_run import TaskRun

DEQUEUED_OFTEN = 10


class Worker:
    """A worker that runs up to ``settings.capacity`` tasks at once.

    ``on_step(step, fields)`` is told each step as it happens, by whichever thread takes it but never by
    two at once; it must return soon and may call ``stop``. The commands' output goes to ``output``, as
    subprocess takes it; None is this process's own standard output.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        on_step: OnStep = log_step,
        clock: Clock | None = None,
        output: Output = None,
    ) -> None:
        self._settings = settings
        self._on_step = on_step
        self._clock = clock or Clock()
        self._output = output
        self._stopping = threading.Event()
        self._never = threading.Event()
        self._telling = threading.RLock()
        self._changed = threading.Condition()  # guards the next two
        self._running: dict[tuple[str, int], TaskRun] = {}
        self._taken = 0  # tasks started so far
        self._http = Http(self._clock, give_up=self._stopping)
        self._queue = QueueClient(settings.base_url, self._http, self._clock)
        self._urls: PollUrls | None = None

    def run(self) -> int:
        """Work until ``stop`` or ``max_tasks``; returns how many tasks were started, all of them ended.

        Raises QueueRefused when the queue refuses the poll URLs, after the tasks at hand have ended.
        """
        try:
            while (room := self._wait_for_room()) > 0:
                if not self._poll_in_order(room):
                    self._clock.wait(self._stopping, self._settings.poll_interval.total_seconds())
        finally:
            with self._changed:
                self._changed.wait_for(lambda: not self._running)
            self._http.close()
        return self._taken

    def stop(self) -> None:
        """Claim nothing more, stop the tasks at hand and report them worker-shutdown. Does not wait."""
        self._stopping.set()
        with self._changed:
            for task_run in self._running.values():
                task_run.shut_down()
            self._changed.notify_all()

    def kill(self) -> None:
        """Kill the commands at hand, for a process that is about to exit without reporting anything."""
        for task_run in list(self._running.values()):
            task_run.kill()

    def _wait_for_room(self) -> int:
        """How many more tasks may be claimed now, waiting until there is room for one; 0 is the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping.is_set() or len(self._running) < self._settings.capacity
            )
            if self._stopping.is_set():
                return 0
            room = self._settings.capacity - len(self._running)
            if self._settings.max_tasks is not None:
                room = min(room, self._settings.max_tasks - self._taken)
            return min(room, MAX_MESSAGES)

    def _poll_in_order(self, room: int) -> bool:
        """Take the messages of the first queue that has any. False when the end of the list is reached."""
        urls = self._poll_urls()
        for number, azure_queue in enumerate(urls.queues if urls else (), start=1):
            if self._stopping.is_set():
                break
            try:
                messages = azure_queue.poll(self._http, room)
            except (Unavailable, PollRefused) as failure:
                self._tell(Step.POLL_FAILED, queue=number, detail=str(failure))
                if isinstance(failure, PollRefused):
                    self._urls = None
                continue
            self._tell(Step.POLL, queue=number, messages=len(messages))
            for message in messages:
                self._take(azure_queue, message)
            if messages:
                return True
        return False

    def _poll_urls(self) -> PollUrls | None:
        """The signed URLs, asked for again before they expire; None while the queue gives no answer."""
        if self._urls and self._clock.now() < self._urls.refresh_at:
            return self._urls
        settings = self._settings
        try:
            self._urls = self._queue.poll_task_urls(
                settings.credentials, settings.provisioner_id, settings.worker_type
            )
        except Unavailable as failure:
            self._tell(Step.POLL_URLS_FAILED, detail=str(failure))
            return self._urls if self._urls and self._clock.now() < self._urls.expires else None
        self._tell(
            Step.POLL_URLS,
            provisioner_id=settings.provisioner_id,
            worker_type=settings.worker_type,
            queues=len(self._urls.queues),
            expires=self._urls.expires,
        )
        return self._urls

    def _take(self, azure_queue: AzureQueue, message: Message) -> None:
        """Claim the task that a message refers to, and start it.

        Deployed protocol: the message is deleted once it is claimed, once the claim is refused (the task
        is not there, not scheduled or already claimed) and when it names no task; it is kept when the queue
        failed to answer. Draft: the queue holds the message, the worker never deletes it.
        """
        if self._stopping.is_set():
            return  # not claimed: the message is visible again soon
        if message.dequeue_count > DEQUEUED_OFTEN:
            count = message.dequeue_count
            self._tell(Step.MESSAGE_DEQUEUED_OFTEN, message_id=message.message_id, dequeue_count=count)
        try:
            claim = self._claim(message)
        except Unavailable:
            return
        if self._settings.protocol is Protocol.DEPLOYED:
            self._delete(azure_queue, message)
        if claim:
            self._start(claim)

    def _claim(self, message: Message) -> Claim | None:
        """Claim the task of a message; None when nobody can, by this message. Raises Unavailable."""
        try:
            work = message.work()
        except MessageUnreadable as unreadable:
            self._tell(Step.MESSAGE_UNREADABLE, message_id=message.message_id, detail=str(unreadable))
            return None
        body = self._claim_body(message, work)
        asked = {"task_id": work.task_id, "run_id": work.run_id}
        try:
            claim = self._queue.claim_task(self._settings.credentials, work.task_id, work.run_id, body)
        except QueueRefused as no:
            self._tell(Step.CLAIM_REFUSED, **asked, status=no.status, code=no.code, detail=no.detail)
            return None
        except Unavailable as failure:
            self._tell(Step.CLAIM_UNAVAILABLE, **asked, detail=str(failure))
            raise
        held = {"task_id": claim.task_id, "run_id": claim.run_id, "taken_until": claim.taken_until}
        self._tell(Step.CLAIM, **held, sent=sorted(body))
        if self._settings.protocol is Protocol.DRAFT:
            self._tell(Step.HELD, **held, message_id=message.message_id)
        return claim

    def _claim_body(self, message: Message, work: Work) -> dict[str, str]:
        """The worker's name and, in the draft, the message, its receipt and its signature."""
        body = {"workerGroup": self._settings.worker_group, "workerId": self._settings.worker_id}
        if self._settings.protocol is Protocol.DRAFT:
            body |= {"messageId": message.message_id, "receipt": message.pop_receipt}
            body |= {"signature": work.signature} if work.signature is not None else {}
        return body

    def _delete(self, azure_queue: AzureQueue, message: Message) -> None:
        try:
            azure_queue.delete(self._http, message)
        except DeleteFailed as failure:
            self._tell(Step.DELETE_FAILED, message_id=message.message_id, detail=str(failure))
        else:
            self._tell(Step.DELETED, message_id=message.message_id)

    def _start(self, claim: Claim) -> None:
        """Run the claimed task in a thread. A second message of a run that is running here starts nothing:
        the queue gives the same worker the same claim again.
        """
        key = claim.task_id, claim.run_id
        client = QueueClient(self._settings.base_url, Http(self._clock, give_up=self._never), self._clock)
        task_run = TaskRun(claim, client, self._clock, self._tell, self._output)
        with self._changed:
            already_running = key in self._running
            if not already_running:
                if self._stopping.is_set():
                    task_run.shut_down()
                threading.Thread(target=self._see_through, args=[key, task_run], daemon=True).start()
                self._running[key] = task_run
                self._taken += 1
        if already_running:
            self._tell(Step.ALREADY_RUNNING, task_id=claim.task_id, run_id=claim.run_id)

    def _see_through(self, key: tuple[str, int], task_run: TaskRun) -> None:
        try:
            task_run.see_through()
        finally:
            with self._changed:
                del self._running[key]
                self._changed.notify_all()

    def _tell(self, step: Step, **fields: Any) -> None:
        with self._telling:
            self._on_step(step, fields)
