"""Finding work in Azure queues, as the draft (seed 004) and the deployed protocol (seed 003) describe it.

The two differ in what is sent with a claim and in who takes the message away afterwards, and in nothing
else.
"""

import threading
from collections.abc import Callable
from datetime import timedelta

from legacy_queue.worker.azure_queue import (
    AzureQueue,
    DeleteFailed,
    Message,
    MessageUnreadable,
    PollRefused,
    Work,
)
from legacy_queue.worker.clock import Clock
from legacy_queue.worker.http import Http, Unavailable
from legacy_queue.worker.queue_client import Claim, PollUrls, QueueClient, QueueRefused
from legacy_queue.worker.settings import Protocol, WorkerSettings
from legacy_queue.worker.steps import Step, Tell

DEQUEUED_OFTEN = 10
AT_ONCE = timedelta(0)


class AzurePolling:
    """Polls the queues of a worker type in order. ``start`` is given each claim as soon as it is made."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        stopping: threading.Event,
        tell: Tell,
        start: Callable[[Claim], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._stopping = stopping
        self._tell = tell
        self._start = start
        self._http = Http(clock, give_up=stopping)
        self._queue = QueueClient(settings.base_url, self._http, clock)
        self._urls: PollUrls | None = None

    def poll(self, room: int) -> timedelta:
        """Claim what the first queue with any message holds, up to ``room`` tasks; how long to wait then.

        Raises QueueRefused when the queue refuses the poll URLs.
        """
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
                return AT_ONCE
        return self._settings.poll_interval

    def hang_up(self) -> None:
        """Nothing to do: a poll of Azure is answered at once, and what it is answered can be left alone."""

    def close(self) -> None:
        self._http.close()

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
