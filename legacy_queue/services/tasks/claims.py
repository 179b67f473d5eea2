"""Makes, extends and releases claims of runs.

The rule. One worker at a time holds a run. The row of the task says which worker, and until when
(takenUntil). A message only says where there may be work. So the conditional write of the row decides about a
claim. If a message comes late, twice, or for no run at all, the claim is refused: there is never a second
holder.

Theory. While run R is running, a message for run R+1 stays hidden until takenUntil: ``domain.transitions``
says why. So each answer to a claim also decides what happens to the message that led to it:

* If the claim is granted, the message becomes the hidden message of the next run before the row is written.
* If the run is held or over, the claim is refused for good. The message is deleted, unless it is hidden for a
  later run.
* If proof is missing or the worker is quarantined, the claim is refused for now. The run stays pending and is
  offered again after a while. Its message may be gone, because a worker of the deployed protocol deletes it.
* If this queue did not sign the message, or it is a message about another task, claimTask returns an error
  and leaves the message alone. If this process received the message itself, it deletes it.
* If the priority of the task was changed, the task has left the queue of the message. A message is put into
  the task's new queue, and only then is the old one deleted.

What is ugly, and why it stays.

* Two callers ask the same question. ``claim`` is for a worker that polled itself. If the answer was lost, the
  worker may repeat its call, and gets the same claim again. ``claim_polled`` is for a message that this
  process received for a worker. It must not hand out the same run twice, and nobody gets an error.
* A worker of the deployed protocol presents no message, so nothing shows which message led it here. After a
  refusal for now it gets a new one, and ``_offered`` limits how many of these add up.
* Credentials count on real time, and everything else on the queue's clock, which a test may move.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog

from legacy_queue.domain import transitions
from legacy_queue.domain.authentication import create_temporary_credentials
from legacy_queue.domain.call_statistics import CLAIM_TASK
from legacy_queue.domain.errors import (
    AuthorizationFailed,
    InputError,
    RequestConflict,
    ResourceNotFound,
)
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import MessageLease, read_message, signature_is_valid
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.times import epoch_milliseconds, format_time, parse_time
from legacy_queue.domain.worker_record import WorkerPath, worker_path
from legacy_queue.ports import Clock, Corrupt
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.services.tasks.work_messages import WorkMessages
from legacy_queue.services.workers.workers import Workers
from legacy_queue.stores.lru_cache import SharedLruCache

log = structlog.get_logger()

OFFERED_AGAIN_AFTER = timedelta(seconds=10)
# Credentials are valid from this long before now to this long after takenUntil, because clocks differ.
CREDENTIALS_DRIFT = timedelta(minutes=15)
_MAX_REMEMBERED = 10_000  # runs that were offered again


@dataclass(frozen=True)
class ClaimProof:
    """The message that a claim presents. Workers of the draft present all of it, deployed ones nothing.

    Only the signature shows which run the message is for. Without a signature, the message is left alone.
    """

    # The messageId that the worker polled. It stays the same as long as the message exists.
    message_id: str | None = None
    # The pop receipt: the right to change or delete the message, until somebody else receives it.
    receipt: str | None = field(default=None, repr=False)
    # The queue's own signature of taskId and runId, from the text of the message.
    signature: str | None = field(default=None, repr=False)

    @property
    def lease(self) -> MessageLease | None:
        if self.message_id and self.receipt and self.signature:
            return MessageLease(self.message_id, self.receipt)
        return None

    @property
    def missing(self) -> list[str]:
        fields = {"messageId": self.message_id, "receipt": self.receipt, "signature": self.signature}
        return [name for name, value in fields.items() if value is None]


class Claims:
    """Claims runs for workers."""

    def __init__(
        self,
        changes: Changes,
        messages: WorkMessages,
        clock: Clock,
        settings: ServiceSettings,
        workers: Workers,
    ) -> None:
        self._changes = changes
        self._messages = messages
        self._clock = clock
        self._settings = settings
        self._workers = workers
        # By taskId, runId and queue: when this process last offered a run again after a claim without a
        # message, on the monotonic clock.
        self._offered: SharedLruCache[tuple[str, int, WorkQueue], timedelta] = SharedLruCache(_MAX_REMEMBERED)

    def claim(
        self, task: Task, run_id: int, worker: Worker, proof: ClaimProof, client_id: str = ""
    ) -> Mapping[str, Any]:
        """Claim the run until takenUntil. Returns the body for the answer of claimTask.

        ``task`` may be outdated: only its definition is used. The answer says which run was claimed: see
        ``transitions.claim``. Raises

        - AuthorizationFailed if the signature is wrong,
        - RequestConflict if storage shows that the message is about another task,
        - InputError if proof is missing, and RequestConflict if the worker is quarantined: both offer the run
          again,
        - ResourceNotFound, RequestConflict, ServiceUnavailable.
        """
        queue = task.work_queue
        path = worker_path(queue.provisioner_id, queue.worker_type, worker)
        with self._workers.call(path, (CLAIM_TASK, tuple(proof.missing)), client_id) as claims:
            self._check(task, run_id, proof)
            self._check_quarantine(task, run_id, path, proof)
            claimed = self._changes.apply(
                task.task_id,
                lambda task, now: self._claimed(task, run_id, worker, proof, now),
                run_id,
                proof.lease,
            )
            claims.append((task.task_id, len(claimed.runs) - 1))
            return self._answer_with_task(claimed)

    def claim_polled(
        self, queue: WorkQueue, message: QueuedMessage, worker: Worker
    ) -> Mapping[str, Any] | None:
        """Claim as ``claim`` does, with a message that this process received from ``queue``.

        If the signature is wrong, the message is stale, or the task cannot be read, it deletes the message
        and returns None. A run that the worker already holds is not claimed again. The claim is not in the
        worker record yet, because the client may have disconnected. Raises ServiceUnavailable.
        """
        message_id = message.lease.message_id

        def decide(task: Task, now: datetime) -> Outcome:
            if task.work_queue != queue:  # no claim is written, and the caller sees the other queue
                return Outcome(task)
            outcome = self._claimed(task, run_id, worker, proof, now)
            if outcome.task == task:  # another request of this worker already has it
                raise RequestConflict(f"task {task_id}: this worker already holds run {run_id}")
            return outcome

        try:
            task_id, run_id, signature = self._verify(message)
        except ValueError as error:
            self._drop(queue, message, error)
            return None
        proof = ClaimProof(message_id, message.lease.receipt, signature)
        try:
            task = self._changes.apply(task_id, decide, run_id, proof.lease)
        except RequestConflict as stale:  # the message is deleted, unless it is held
            log.info("work-message-stale", message_id=message_id, why=stale.message)
            return None
        except (ResourceNotFound, Corrupt) as error:  # the message is for a run far ahead, or for no task
            self._drop(queue, message, error)
            return None
        if task.work_queue == queue:
            return self._answer_with_task(task)
        log.info("work-message-moved", message_id=message_id, task_id=task_id)
        # The process that changed the priority may have died before it put a message into the new queue.
        # First offer, then delete: else a crash in between would leave a pending run without a message.
        if task.state == "pending":
            self._messages.offer(task, len(task.runs) - 1)
        self._messages.delete(queue, message.lease)
        return None

    def release_claim(self, claim: Mapping[str, Any], worker: Worker) -> None:
        """Release a claim if its answer never reached the worker. Raises ServiceUnavailable."""
        task_id = claim["status"]["taskId"]
        run_id = claim["runId"]
        taken_until = parse_time(claim["takenUntil"])
        log.info("claim-released", task_id=task_id, run_id=run_id)
        with suppress(ResourceNotFound):
            self._changes.apply(
                task_id, lambda task, _: transitions.release_claim(task, run_id, worker, taken_until)
            )

    def reclaim(self, task_id: str, run_id: int) -> Mapping[str, Any]:
        """Extend the claim. Returns the body for the answer of reclaimTask, with new credentials.

        Raises ResourceNotFound, RequestConflict.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            return transitions.reclaim(task, run_id, self._settings.claim_timeout, now)

        task = self._changes.apply(task_id, decide)
        queue = task.work_queue
        worker = task.runs[-1].worker
        assert worker  # noqa: S101 - a claimed run has one
        self._workers.record_activity(worker_path(queue.provisioner_id, queue.worker_type, worker))
        return self._answer(task)

    def _drop(self, queue: WorkQueue, message: QueuedMessage, error: Exception) -> None:
        log.warning("work-message-dropped", message_id=message.lease.message_id, why=str(error))
        self._messages.delete(queue, message.lease)

    def _verify(self, message: QueuedMessage) -> tuple[str, int, str]:
        """Returns taskId, runId and signature of a message that this queue has signed. Raises ValueError."""
        task_id, run_id, signature = read_message(message.text)
        if not signature_is_valid(signature, task_id, run_id, self._settings.secrets):
            raise ValueError("its signature is wrong")
        return task_id, run_id, signature

    def _claimed(self, task: Task, run_id: int, worker: Worker, proof: ClaimProof, now: datetime) -> Outcome:
        return transitions.claim(
            task, run_id, worker, proof.lease, proof.message_id, self._settings.claim_timeout, now
        )

    def _check(self, task: Task, run_id: int, proof: ClaimProof) -> None:
        signature = proof.signature
        if signature is not None and not signature_is_valid(
            signature, task.task_id, run_id, self._settings.secrets
        ):
            raise AuthorizationFailed(
                f"the signature does not belong to task {task.task_id} run {run_id}: "
                "pass the signature of the message that you polled"
            )
        # A claim changes or deletes the message that it presents. Another task would lose its message.
        if proof.lease and self._messages.is_of_another(task, proof.lease):
            raise RequestConflict(
                f"the message {proof.message_id} does not belong to task {task.task_id}: "
                "pass messageId, receipt and signature of one message"
            )
        queue = task.work_queue
        if self._settings.policy(queue.provisioner_id, queue.worker_type) == "required" and proof.missing:
            self._offer_again(task.task_id, run_id, proof)
            raise InputError(
                f"workers of {queue.task_queue_id} must present the message that they polled: "
                f"this claim lacks {', '.join(proof.missing)}. "
                "Expected messageId, receipt and signature"
            )

    def _check_quarantine(self, task: Task, run_id: int, path: WorkerPath, proof: ClaimProof) -> None:
        if until := self._workers.quarantined_until(path):
            self._offer_again(task.task_id, run_id, proof)
            raise RequestConflict(
                f"worker {'/'.join(path[2:])} of {'/'.join(path[:2])} is quarantined "
                f"until {format_time(until)}, and gets no work before that"
            )

    def _offer_again(self, task_id: str, run_id: int, proof: ClaimProof) -> None:
        """After a refused claim, offer the run again after a while.

        Offers the presented message itself. A worker of the draft does not delete it, so new messages would
        pile up. Without a presented message, a process offers the same run at most every 5 s. If another
        claim holds the message, it becomes visible after takenUntil.
        """
        task = self._changes.read(task_id).task
        last = task.last_run
        now = self._clock.now()
        if last is None or last.is_resolved:
            return
        next_run_id = last.run_id
        delay = OFFERED_AGAIN_AFTER
        if last.taken_until:
            next_run_id = last.run_id + 1
            delay = max(delay, last.taken_until - now)
        # a message may be one run ahead: a crash before the write of a claim leaves such a message
        if run_id not in (next_run_id, next_run_id + 1):
            return
        offer = task_id, next_run_id, task.work_queue
        offered = self._offered.get(offer)
        passed = self._clock.monotonic()
        if proof.lease is None and offered and passed - offered < OFFERED_AGAIN_AFTER / 2:
            return
        self._messages.offer(task, next_run_id, proof.lease, delay)
        if proof.lease is None:
            self._offered.put(offer, passed)

    def _answer_with_task(self, task: Task) -> Mapping[str, Any]:
        return {**self._answer(task), "task": task.wire}

    def _answer(self, task: Task) -> dict[str, Any]:
        run = task.runs[-1]
        worker = run.worker
        taken_until = run.taken_until
        assert worker  # noqa: S101 - a claimed run has both
        assert taken_until  # noqa: S101
        scopes = [
            f"queue:{right}:{task.task_id}/{run.run_id}"
            for right in ("claim-task", "reclaim-task", "resolve-task", "create-artifact")
        ]
        seconds = epoch_milliseconds(taken_until) // 1000
        credentials = create_temporary_credentials(
            self._settings.issuer,
            f"task-client/{task.task_id}/{run.run_id}/on/{worker.worker_group}/{worker.worker_id}/until/{seconds}",
            list(dict.fromkeys([*scopes, *task.definition.wire["scopes"]])),
            start=self._clock.wall_time() - CREDENTIALS_DRIFT,
            expiry=self._clock.wall_time_of(taken_until) + CREDENTIALS_DRIFT,
            seed=slugid() + slugid(),
        )
        return {
            "status": task.status(),
            "runId": run.run_id,
            "workerGroup": worker.worker_group,
            "workerId": worker.worker_id,
            "takenUntil": format_time(taken_until),
            "credentials": credentials.to_wire(),
        }
