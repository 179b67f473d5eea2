"""What a worker reports of itself while it works: the arrows and notes of the seeds' charts.

The fields of a step may be shown to anybody: ids, times, counts and reasons; never a signed URL, a receipt,
a signature, a token or a value of the task's environment.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any, Self

import structlog


class Step(StrEnum):
    """Each with its log level and its fields; the steps of a task all have ``task_id`` and ``run_id`` too."""

    level: int

    def __new__(cls, name: str, level: int = INFO) -> Self:
        step = str.__new__(cls, name)
        step._value_, step.level = name, level
        return step

    POLL_URLS = "poll-urls"  # provisioner_id, worker_type, queues (how many), expires
    POLL = "poll", DEBUG  # queue (1 is the first, of the highest priority), messages (how many)
    CLAIM_WORK = "claim-work", DEBUG  # claimwork: tasks (how many were asked for), claims (how many came)
    CLAIM = "claim"  # taken_until, sent (the names of the parameters)
    HELD = "held"  # draft: the queue hides message_id until taken_until
    DELETED = "deleted"  # deployed: message_id
    RUN = "run"  # the command starts
    RECLAIM = "reclaim"  # taken_until
    EXITED = "exited"  # exit_code; -9 for signal 9
    ARTIFACT = "artifact"  # name, storage_type
    REPORT = "report"  # result (completed, failed, exception), reason

    MESSAGE_DEQUEUED_OFTEN = "message-dequeued-often", ERROR  # message_id, dequeue_count
    MESSAGE_UNREADABLE = "message-unreadable", WARNING  # message_id, detail
    CLAIM_REFUSED = "claim-refused"  # status, code, detail
    CLAIM_UNAVAILABLE = "claim-unavailable", WARNING  # detail
    ALREADY_RUNNING = "already-running", WARNING
    DELETE_FAILED = "delete-failed", ERROR  # message_id, detail
    POLL_URLS_FAILED = "poll-urls-failed", WARNING  # detail
    POLL_FAILED = "poll-failed", WARNING  # queue, detail
    CLAIM_WORK_FAILED = "claim-work-failed", WARNING  # detail
    PAYLOAD_MALFORMED = "payload-malformed"  # detail
    INTERNAL_ERROR = "internal-error", ERROR  # detail
    TIME_OVER = "time-over"  # max_run_time in seconds
    RECLAIM_FAILED = "reclaim-failed", WARNING  # detail; tried again before takenUntil
    CLAIM_LOST = "claim-lost"  # detail; the task is stopped and forgotten
    ARTIFACT_FAILED = "artifact-failed", WARNING  # name, detail
    REPORT_FAILED = "report-failed", WARNING  # result, reason, detail


OnStep = Callable[[Step, Mapping[str, Any]], None]
Notify = Callable[..., None]  # a step, and its fields by name


def log_step(step: Step, fields: Mapping[str, Any]) -> None:
    """One line of the log for each step; a poll that found something is information too."""
    found = fields.get("messages") or fields.get("claims")
    structlog.get_logger("legacy_queue.worker").log(INFO if found else step.level, step.value, **fields)
