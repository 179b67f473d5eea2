"""The signed message in a work queue, and the lease on it."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from legacy_queue.domain.ids import TASK_ID, RunKey
from legacy_queue.domain.json_bytes import to_json

# Names for the requests that workers send to signed URLs. They stand where other requests have their
# endpoint.
RECEIVE = "azure.receive"
DELETE = "azure.delete"


@dataclass(frozen=True)
class MessageLease:
    """The right to change or delete a message. Azure gives it to whoever last put, received or updated it."""

    message_id: str
    receipt: str = field(repr=False)


def message_signature(task_id: str, run_id: int, secret: bytes) -> str:
    """Base64 HMAC-SHA256 of ``<task_id>/<run_id>``. Source: queue-worker interaction (draft)."""
    mac = hmac.digest(secret, f"{task_id}/{run_id}".encode(), hashlib.sha256)
    return base64.b64encode(mac).decode()


def signature_is_valid(signature: str, task_id: str, run_id: int, secrets: Sequence[bytes]) -> bool:
    """Whether one of the secrets made this signature. An old secret is valid as long as it is in the list."""
    valid = (message_signature(task_id, run_id, secret).encode() for secret in secrets)
    return any(hmac.compare_digest(signature.encode(), expected) for expected in valid)


def message_text(task_id: str, run_id: int, secret: bytes) -> str:
    """``MessageText``: base64 of the JSON ``{"taskId", "runId", "signature"}``."""
    wire = {"taskId": task_id, "runId": run_id, "signature": message_signature(task_id, run_id, secret)}
    return base64.b64encode(to_json(wire)).decode()


def read_message(text: str) -> tuple[str, int, str]:
    """Returns taskId, runId and signature: the inverse of ``message_text``. Raises ValueError."""
    try:
        wire = json.loads(base64.b64decode(text, validate=True))
        task_id = wire["taskId"]
        run_id = wire["runId"]
        signature = wire["signature"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a work message: {type(error).__name__}") from None
    if not (isinstance(task_id, str) and type(run_id) is int and isinstance(signature, str)):
        raise ValueError("not a work message: a value has the wrong type")
    if not re.fullmatch(TASK_ID, task_id) or run_id < 0:
        raise ValueError("not a work message: the taskId is not a slugid, or the runId is negative")
    return task_id, run_id, signature


def needs_message(state: str, *, is_held: bool) -> bool:
    """Whether a task in that state must have a message: a visible one if it is pending, or a held one.

    A claim that lasts until about the deadline holds no message: see ``outcome.message_held``.
    """
    return state == "pending" or is_held


def lacks_messages(needed: int, messages: int) -> bool:
    """Whether a pool has lost a message, judged by numbers alone: ``needed`` tasks need a message each.

    A message of a task that has ended makes up for a lost one in this count, until a worker receives it.
    """
    return messages < needed


@dataclass(frozen=True)
class PeekedMessage:
    """A message of a work queue. ``run`` is its taskId and runId, or None if the text is not a work message.
    ``visible_in`` is 0 for a visible message.
    """

    message_id: str
    run: RunKey | None
    priority: str
    visible_in: timedelta
    dequeue_count: int
    inserted: datetime


@dataclass(frozen=True)
class Peeked:
    """Messages, highest priority first, and how many more there are that the storage does not show."""

    messages: list[PeekedMessage]
    hidden: int
