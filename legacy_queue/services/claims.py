"""Claims on runs: made, extended, and what a worker gets with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from legacy_queue.domain import transitions
from legacy_queue.domain.credentials import Client, create_temporary_credentials
from legacy_queue.domain.errors import AuthorizationFailed, InputError
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import Lease, signature_is_valid
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.times import epoch_milliseconds, format_time
from legacy_queue.ports import Clock
from legacy_queue.services.changes import Changes
from legacy_queue.services.work_messages import WorkMessages

OFFERED_AGAIN_AFTER = timedelta(seconds=10)
_CREDENTIALS_DRIFT = timedelta(minutes=15)  # before now, and after takenUntil


@dataclass(frozen=True)
class Presented:
    """What a claim brings of the message that led to it: all of it (draft) or nothing (deployed).

    Only the signature tells whose message it is: without one, the message is left alone.
    """

    message_id: str | None = None
    receipt: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)

    @property
    def lease(self) -> Lease | None:
        if self.message_id and self.receipt and self.signature:
            return Lease(self.message_id, self.receipt)
        return None

    @property
    def missing(self) -> list[str]:
        given = {"messageId": self.message_id, "receipt": self.receipt, "signature": self.signature}
        return [name for name, value in given.items() if value is None]


@dataclass(frozen=True)
class ClaimRules:
    """``secrets`` verify a message's signature, any of them. ``required`` are the worker types, as
    ``provisionerId/workerType``, that must present their message. ``issuer`` signs the claims' credentials.
    """

    secrets: Sequence[bytes] = field(repr=False)
    claim_timeout: timedelta
    required: frozenset[str]
    issuer: Client


class Claims:
    """Claims runs for workers."""

    def __init__(self, changes: Changes, messages: WorkMessages, clock: Clock, rules: ClaimRules) -> None:
        self._changes, self._messages, self._clock, self._rules = changes, messages, clock, rules

    def claim(self, task: Task, run_id: int, worker: Worker, presented: Presented) -> Mapping[str, Any]:
        """The worker holds the run until takenUntil; the body that claimTask answers.

        ``task`` may be old: only its definition counts. The run that is claimed is in the answer: see
        ``transitions.claim``. Raises AuthorizationFailed for a wrong signature, which changes nothing;
        InputError for a message that is not presented where it must be, and then the run is offered again;
        ResourceNotFound, RequestConflict, ServiceUnavailable.
        """
        self._check(task, run_id, presented)

        def decide(task: Task) -> Outcome:
            return transitions.claim(
                task,
                run_id,
                worker,
                presented.lease,
                presented.message_id,
                self._rules.claim_timeout,
                self._clock.now(),
            )

        task = self._changes.apply(task.task_id, decide, run_id, presented.lease)
        return {**self._answer(task), "task": task.definition.wire}

    def reclaim(self, task_id: str, run_id: int) -> Mapping[str, Any]:
        """The claim lasts longer; the body that reclaimTask answers, with new credentials.

        Raises ResourceNotFound, RequestConflict.
        """

        def decide(task: Task) -> Outcome:
            return transitions.reclaim(task, run_id, self._rules.claim_timeout, self._clock.now())

        return self._answer(self._changes.apply(task_id, decide))

    def _check(self, task: Task, run_id: int, presented: Presented) -> None:
        signature = presented.signature
        if signature is not None and not signature_is_valid(
            signature, task.task_id, run_id, self._rules.secrets
        ):
            raise AuthorizationFailed(
                f"the signature is not that of task {task.task_id} run {run_id}: "
                "pass the signature of the message that you polled"
            )
        queue = task.definition.work_queue
        name = f"{queue.provisioner_id}/{queue.worker_type}"
        if name in self._rules.required and presented.missing:
            self._offer_again(self._changes.read(task.task_id).task, run_id)
            raise InputError(
                f"workers of {name} must present the message that they polled: "
                f"{', '.join(presented.missing)} missing. messageId, receipt and signature are accepted"
            )

    def _offer_again(self, task: Task, run_id: int) -> None:
        """A worker deletes its message when it is refused: the run that it leads to needs another.

        That may also be the held message of a claim: then the other one is visible after takenUntil.
        """
        last = task.last_run
        if last is None or last.is_resolved:
            return
        wanted, delay = last.run_id, OFFERED_AGAIN_AFTER
        if last.taken_until:
            wanted, delay = last.run_id + 1, max(delay, last.taken_until - self._clock.now())
        if run_id in (wanted, wanted + 1):
            self._messages.offer(task, wanted, delay=delay)

    def _answer(self, task: Task) -> dict[str, Any]:
        run = task.runs[-1]
        worker, taken_until = run.worker, run.taken_until
        assert worker  # noqa: S101 - a claimed run has both
        assert taken_until  # noqa: S101
        own = [
            f"queue:{right}:{task.task_id}/{run.run_id}"
            for right in ("claim-task", "reclaim-task", "resolve-task", "create-artifact")
        ]
        seconds = epoch_milliseconds(taken_until) // 1000
        credentials = create_temporary_credentials(
            self._rules.issuer,
            f"task-client/{task.task_id}/{run.run_id}/on/{worker.worker_group}/{worker.worker_id}/until/{seconds}",
            list(dict.fromkeys([*own, *task.definition.wire["scopes"]])),
            start=self._clock.now() - _CREDENTIALS_DRIFT,
            expiry=taken_until + _CREDENTIALS_DRIFT,
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
