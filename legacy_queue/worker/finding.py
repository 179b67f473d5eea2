"""Finds work: in Azure queues, as the draft and the deployed protocol describe it, or by claimWork.

The draft and the deployed protocol differ only in the body of a claim, and in who deletes the message.
Source: docs/explanation/protocols.md.
"""

from collections.abc import Iterator, Sequence

from legacy_queue.worker.http_client import Unavailable
from legacy_queue.worker.polled_queue import AzureRefused, MessageUnreadable, PolledMessage, PolledQueue
from legacy_queue.worker.queue_client import Claim, PollUrls, QueueClient, QueueRefused
from legacy_queue.worker.worker_settings import Context, Protocol, Step

DEQUEUED_OFTEN = 10


def claim_work(context: Context, client: QueueClient, max_claims: int) -> Iterator[Claim]:
    """Yield up to ``max_claims`` claims; the queue answers when there is work, or after its long poll.

    The queue answers a quarantined worker at once: then this waits for the rest of the poll interval.
    Raises QueueRefused.
    """
    settings, clock, stopping = context.settings, context.clock, context.stopping
    started_at, pause = clock.monotonic(), settings.poll_interval.total_seconds()
    body = {**settings.name_to_wire(), "tasks": max_claims}
    try:
        claims = client.claim_work(body)
    except Unavailable as failure:
        if not stopping.is_set():
            context.notify(Step.CLAIM_WORK_FAILED, detail=str(failure))
        clock.wait(stopping, pause)
        return
    context.notify(Step.CLAIM_WORK, tasks=max_claims, claims=len(claims))
    for claim in claims:
        context.notify(Step.CLAIM, **claim.run, taken_until=claim.taken_until, sent=sorted(body))
        yield claim
    left = pause - (clock.monotonic() - started_at)
    if not claims and left > 0:
        clock.wait(stopping, left)


class AzurePolling:
    """Polls the queues of a worker type in order, the highest priority first."""

    def __init__(self, context: Context, client: QueueClient) -> None:
        self._context, self._client = context, client
        self._settings, self._notify = context.settings, context.notify
        self._urls: PollUrls | None = None

    def claims(self, max_claims: int) -> Iterator[Claim]:
        """Claim up to ``max_claims`` tasks of the first queue that holds any message.

        Waits for the poll interval if no queue holds any. Raises QueueRefused if the queue refuses the poll
        URLs.
        """
        stopping = self._context.stopping
        for number, azure_queue in enumerate(self._azure_queues(), start=1):
            if stopping.is_set():
                return
            try:
                messages = azure_queue.poll(self._client.http, max_claims)
            except (Unavailable, AzureRefused) as failure:
                self._notify(Step.POLL_FAILED, queue=number, detail=str(failure))
                if isinstance(failure, AzureRefused):
                    self._urls = None
                continue
            self._notify(Step.POLL, queue=number, messages=len(messages))
            for message in messages:
                # messages that are left over become visible again soon
                if not stopping.is_set() and (claim := self._claim(azure_queue, message)):
                    yield claim
            if messages:
                return
        self._context.clock.wait(stopping, self._settings.poll_interval.total_seconds())

    def _azure_queues(self) -> Sequence[PolledQueue]:
        """The queues with their signed URLs, which are requested again before they expire.

        Empty if the URLs have expired and the queue does not answer.
        """
        settings, now = self._settings, self._context.clock.now()
        if self._urls and now < self._urls.refresh_at:
            return self._urls.queues
        try:
            self._urls = urls = self._client.poll_task_urls()
        except Unavailable as failure:
            self._notify(Step.POLL_URLS_FAILED, detail=str(failure))
            return self._urls.queues if self._urls and now < self._urls.expires else ()
        pool = {"provisioner_id": settings.provisioner_id, "worker_type": settings.worker_type}
        self._notify(Step.POLL_URLS, **pool, queues=len(urls.queues), expires=urls.expires)
        return urls.queues

    def _claim(self, azure_queue: PolledQueue, message: PolledMessage) -> Claim | None:
        """Claim the task that a message names; None if that fails.

        Deployed protocol: the worker deletes the message after the claim, after a refused claim (the task is
        missing, not scheduled or already claimed), and if it names no task; it keeps the message if the queue
        does not answer. Draft: the queue holds the message, and the worker never deletes it.
        """
        claim, message_field = None, {"message_id": message.message_id}
        is_draft = self._settings.protocol is Protocol.DRAFT
        if message.dequeue_count > DEQUEUED_OFTEN:
            self._notify(Step.MESSAGE_DEQUEUED_OFTEN, **message_field, dequeue_count=message.dequeue_count)
        body = self._settings.name_to_wire()
        try:
            work = message.work()
            run = {"task_id": work.task_id, "run_id": work.run_id}
            if is_draft:
                body |= {"messageId": message.message_id, "receipt": message.pop_receipt}
                body |= {"signature": work.signature} if work.signature is not None else {}
            claim = self._client.claim_task(work.task_id, work.run_id, body)
        except MessageUnreadable as unreadable:
            self._notify(Step.MESSAGE_UNREADABLE, **message_field, detail=str(unreadable))
        except QueueRefused as refused:
            self._notify(
                Step.CLAIM_REFUSED, **run, status=refused.status, code=refused.code, detail=refused.detail
            )
        except Unavailable as failure:
            self._notify(Step.CLAIM_UNAVAILABLE, **run, detail=str(failure))
            return None
        if claim:
            held = {**claim.run, "taken_until": claim.taken_until}
            self._notify(Step.CLAIM, **held, sent=sorted(body))
            if is_draft:
                self._notify(Step.HELD, **held, **message_field)
        if not is_draft:
            try:
                azure_queue.delete(self._client.http, message)
                self._notify(Step.DELETED, **message_field)
            except (Unavailable, AzureRefused) as failure:
                self._notify(Step.DELETE_FAILED, **message_field, detail=str(failure))
        return claim
