"""What a worker tells about itself while it works: the arrows and notes of the seeds' charts.

A step is a name and fields that may be shown to anybody: ids, times, counts and reasons; never a
signed URL, a receipt, a signature, a token or a value of the task's environment.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import structlog


class Step(StrEnum):
    """Each with its fields; those of one task all have ``task_id`` and ``run_id`` as well."""

    POLL_URLS = "poll-urls"  # provisioner_id, worker_type, queues (how many), expires
    POLL = "poll"  # queue (1 is the first, of the highest priority), messages (how many)
    CLAIM_WORK = "claim-work"  # claimwork: tasks (how many were asked for), claims (how many came)
    CLAIM = "claim"  # taken_until, sent (the names of what was sent along)
    HELD = "held"  # draft: the queue hides message_id until taken_until
    DELETED = "deleted"  # deployed: message_id
    RUN = "run"  # the command starts
    RECLAIM = "reclaim"  # taken_until
    EXITED = "exited"  # exit_code; -9 for signal 9
    ARTIFACT = "artifact"  # name, storage_type
    REPORT = "report"  # result (completed, failed, exception), reason

    MESSAGE_DEQUEUED_OFTEN = "message-dequeued-often"  # message_id, dequeue_count
    MESSAGE_UNREADABLE = "message-unreadable"  # message_id, detail
    CLAIM_REFUSED = "claim-refused"  # status, code, detail
    CLAIM_UNAVAILABLE = "claim-unavailable"  # detail
    ALREADY_RUNNING = "already-running"
    DELETE_FAILED = "delete-failed"  # message_id, detail
    POLL_URLS_FAILED = "poll-urls-failed"  # detail
    POLL_FAILED = "poll-failed"  # queue, detail
    CLAIM_WORK_FAILED = "claim-work-failed"  # detail
    PAYLOAD_MALFORMED = "payload-malformed"  # detail
    INTERNAL_ERROR = "internal-error"  # detail
    TIME_OVER = "time-over"  # max_run_time in seconds
    RECLAIM_FAILED = "reclaim-failed"  # detail; tried again before takenUntil
    CLAIM_LOST = "claim-lost"  # detail; the task is stopped and forgotten
    ARTIFACT_FAILED = "artifact-failed"  # name, detail
    REPORT_FAILED = "report-failed"  # result, reason, detail


OnStep = Callable[[Step, Mapping[str, Any]], None]
Tell = Callable[..., None]  # a step, and its fields by name

_ORDINARY = frozenset(
    {
        Step.POLL_URLS,
        Step.CLAIM,
        Step.HELD,
        Step.DELETED,
        Step.RUN,
        Step.RECLAIM,
        Step.EXITED,
        Step.ARTIFACT,
        Step.REPORT,
        Step.CLAIM_REFUSED,
        Step.PAYLOAD_MALFORMED,
        Step.TIME_OVER,
        Step.CLAIM_LOST,
    }
)
_SERIOUS = frozenset({Step.MESSAGE_DEQUEUED_OFTEN, Step.DELETE_FAILED, Step.INTERNAL_ERROR})


def log_step(step: Step, fields: Mapping[str, Any]) -> None:
    """One line of the log for each step; what an operator must see is an error, an idle poll is debug."""
    log = structlog.get_logger("legacy_queue.worker")
    if step in (Step.POLL, Step.CLAIM_WORK):
        log.log(20 if fields.get("messages") or fields.get("claims") else 10, step.value, **fields)
    elif step in _SERIOUS:
        log.error(step.value, **fields)
    elif step in _ORDINARY:
        log.info(step.value, **fields)
    else:
        log.warning(step.value, **fields)
