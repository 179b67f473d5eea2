"""Finds work: in Azure queues, as the draft and the deployed protocol describe it, or by claimWork.

The draft and the deployed protocol differ only in the body of a claim, and in who deletes the message. Each
way raises Unavailable if another attempt may succeed, and Refused if the queue refuses this worker.
Source: docs/explanation/protocols.md.
"""

from datetime import timedelta
from typing import Any

from legacy_queue.worker.http_client import Refused, Unavailable
from legacy_queue.worker.polled_queue import PolledMessage, PolledQueue
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.worker_settings import Context, Protocol, Step

REFRESH_MARGIN = timedelta(minutes=5)


def claim_work(context: Context, client: QueueClient) -> Claim | None:
    """Claim a task; None if none is pending."""
    claim = client.claim_work(context.settings.name_to_wire())
    context.notify(Step.POLL, claims=1 if claim else 0)
    if claim:
        context.notify(Step.CLAIM, **claim.run, taken_until=claim.taken_until)
    return claim


class AzurePolling:
    """Polls the queues of a worker type in order, the highest priority first."""

    def __init__(self, context: Context, client: QueueClient) -> None:
        self._context = context
        self._client = client
        self._settings = context.settings
        self._notify = context.notify
        self._queues: list[PolledQueue] = []
        self._refresh_at = context.clock.now()

    def claim(self) -> Claim | None:
        """Claim a task; None if no queue has a message that can be claimed, or the worker stops."""
        now = self._context.clock.now()
        stopping = self._context.stopping
        if now >= self._refresh_at:
            self._queues, expires = self._client.poll_task_urls()
            # five minutes before the URLs expire, or half way if that is later
            self._refresh_at = expires - min(REFRESH_MARGIN, (expires - now) / 2)
            self._notify(Step.POLL_URLS, queues=len(self._queues), expires=expires)
        for number, azure_queue in enumerate(self._queues, start=1):
            try:
                while not stopping.is_set() and (message := self._client.poll(azure_queue)):
                    self._notify(Step.POLL, queue=number, messages=1)
                    if stopping.is_set():  # another worker gets the message when it is visible again
                        return None
                    if claim := self._claim(azure_queue, message):
                        return claim
                self._notify(Step.POLL, queue=number, messages=0)
            except (Refused, Unavailable) as failure:
                self._notify(Step.FAILURE, queue=number, detail=str(failure))
                if isinstance(failure, Refused):  # only other URLs can help
                    self._refresh_at = now
        return None

    def _claim(self, azure_queue: PolledQueue, message: PolledMessage) -> Claim | None:
        """Claim the task that a message names; None if that is refused.

        Deployed protocol: the worker deletes the message after the claim, after a refused claim (the task is
        missing, not scheduled or already claimed), and if there is nothing to claim; it keeps the message if
        the queue does not answer. Draft: the queue holds the message, and the worker never deletes it.
        """
        is_draft = self._settings.protocol is Protocol.DRAFT
        claim = None
        named: dict[str, Any] = {"message_id": message.message_id}
        if work := message.work():
            named |= {"task_id": work["taskId"], "run_id": work["runId"]}
            proof = message.claim_proof() if is_draft else {}
            body = {**self._settings.name_to_wire(), **proof}
            try:
                claim = self._client.claim_task(work["taskId"], work["runId"], body)
                self._notify(Step.CLAIM, **claim.run, taken_until=claim.taken_until)
            except Refused as failure:
                self._notify(Step.FAILURE, **named, detail=str(failure))
        else:
            self._notify(Step.FAILURE, **named, detail="the message names no task")
        if not is_draft:
            try:
                self._client.delete(azure_queue, message)
                self._notify(Step.DELETED, **named)
            except (Unavailable, Refused) as failure:
                self._notify(Step.FAILURE, **named, detail=str(failure))
        return claim
