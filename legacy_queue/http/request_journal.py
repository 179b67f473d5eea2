"""Keeps the last requests and their answers, for tests. It never shows a secret of a request."""

import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from legacy_queue.domain.messages import read_message
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import ID_NAMES
from legacy_queue.history.words import requester
from legacy_queue.http.parameters import PARAMETERS
from legacy_queue.http.request_log import RequestRecord, without_signature
from legacy_queue.http.schema_properties import REASONS
from legacy_queue.ports.queue import QueuedMessage

SIZE = 10_000  # requests
_MAX_TARGET = 2000  # characters
_MAX_REASON = 1000  # characters
# query parameters; of Azure's, those that do not sign the URL
_SHOWN = {*PARAMETERS, "numofmessages", "visibilitytimeout", "timeout", "peekonly", "comp"}
_REASONS = {*REASONS.split(), "resources-unavailable"}
_MESSAGE_ID = re.compile("[0-9a-fA-F-]{36}")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+%-]{0,200}")


SELECTORS = ("taskId", "endpoint", "taskQueueId", "caller", "failed")


class Journal:
    """The last 10,000 requests, without those to the ``excluded`` endpoints. ``now`` is the queue's clock."""

    def __init__(self, excluded: Container[str | None], now: Callable[[], datetime]) -> None:
        self._excluded = excluded
        self._now = now
        self._numbers = itertools.count(1)
        self._entries: deque[dict[str, Any]] = deque(maxlen=SIZE)  # appended to by several threads

    def answered(self, record: RequestRecord) -> None:
        """Records a request in the form in which it is shown. Fields without a value are left out."""
        name = record.endpoint
        if name in self._excluded:
            return
        code, reason = record.error
        claims = _claims(name, record.answer)
        known = {
            "sequence": next(self._numbers),
            "begun": record.begun,
            "time": format_time(self._now()),
            "requestId": record.request_id,
            "method": record.method,
            "path": shown_target(record.target[:_MAX_TARGET]),
            "status": record.status,
            "ms": record.ms,
            "endpoint": name,
            "code": code,
            "reason": reason and without_signature(reason[:_MAX_REASON].partition("\n")[0]),
            "clientId": record.client_id,
            "priority": record.queue and record.queue.priority,
            **_subject(record, claims),
            "fault": record.fault,
            **_sent(record.payload),
            "messages": None if record.messages is None else [*map(_received, record.messages)],
            "claims": claims,
            "expires": record.answer.get("expires") if name == "pollTaskUrls" else record.url_expires,
            "isDisconnected": record.is_disconnected or None,
        }
        self._entries.append({field: value for field, value in known.items() if value is not None})

    def requests_of(self, task_id: str) -> Sequence[Mapping[str, Any]]:
        """Returns all requests about the task, oldest first."""
        return self.requests(SIZE, None, {"taskId": task_id})

    def requests(
        self, limit: int, after: int | None, chosen: Mapping[str, str] = MappingProxyType({})
    ) -> Sequence[Mapping[str, Any]]:
        """Returns the last ``limit`` requests, oldest first, or the first ones after the number ``after``.

        ``chosen`` selects requests: its keys are in SELECTORS.
        """
        entries = sorted(
            (entry for entry in [*self._entries] if _is_chosen(entry, chosen)), key=itemgetter("sequence")
        )
        if after is None:
            return entries[-limit:]
        return [entry for entry in entries if entry["sequence"] > after][:limit]

    def counts(self, chosen: Mapping[str, str]) -> Mapping[str, Counter[str]]:
        """For each selector, how many requests each of its values selects together with the others chosen."""
        counts = {name: Counter[str]() for name in SELECTORS}
        for entry in [*self._entries]:
            unmet = [name for name, value in chosen.items() if not _is_chosen(entry, {name: value})]
            for name in SELECTORS if not unmet else unmet if len(unmet) == 1 else ():
                if value := _selected_by(entry, name):
                    counts[name][value] += 1
        return counts


def _is_chosen(entry: Mapping[str, Any], chosen: Mapping[str, str]) -> bool:
    return all(
        _selected_by(entry, name) == value or (name == "taskId" and value in entry.get("taskIds", ()))
        for name, value in chosen.items()
    )


def _selected_by(entry: Mapping[str, Any], name: str) -> str:
    """The value of the selector ``name`` that selects the entry, "" if none does."""
    match name:
        case "failed":
            return "false" if 0 < entry["status"] < 400 else "true"
        case "caller":
            return requester(entry)
    return str(entry.get(name, ""))


def _subject(record: RequestRecord, claims: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Returns the task, run, worker and pool of the request. If it has several tasks, it has ``taskIds``."""
    params = record.params
    body = record.payload[1] if record.payload and isinstance(record.payload[1], dict) else {}
    worker = body if "workerId" in body else params
    pool = params if "workerType" in params else body
    named = pool.get("taskQueueId") or "/".join(str(pool.get(name, "")) for name in ID_NAMES[:2])
    sent = {
        "taskQueueId": record.queue.task_queue_id if record.queue else named,
        "taskId": params.get("taskId"),
        "runId": params.get("runId"),
        "workerGroup": worker.get("workerGroup"),
        "workerId": worker.get("workerId"),
    }
    # an invalid value could be a secret
    subject: dict[str, Any] = {name: value for name, value in sent.items() if _is_valid(name, value)}
    if "runId" in subject:
        subject["runId"] = int(subject["runId"])
    runs = record.runs or [(claim["taskId"], claim["runId"]) for claim in claims or ()]
    if len(runs) == 1:
        ((subject["taskId"], subject["runId"]),) = runs
    elif runs:
        subject["taskIds"] = [task_id for task_id, _ in runs]
    return subject


def _sent(payload: tuple[bytes, Any] | None) -> dict[str, Any]:
    """Returns what a worker sent with a claim or a report. Receipt and signature are digests."""
    body = payload[1] if payload and isinstance(payload[1], dict) else {}
    texts = {name: text for name, text in body.items() if isinstance(text, str)}
    tasks = body.get("tasks")
    reason = texts.get("reason") if texts.get("reason") in _REASONS else None
    return {
        "messageId": _MESSAGE_ID.fullmatch(texts.get("messageId", "")) and texts["messageId"],
        "receipt": texts.get("receipt") and _digest(texts["receipt"]),
        "signature": texts.get("signature") and _digest(texts["signature"]),
        "reportedReason": reason,
        "sentReason": reason,  # the name of 0.1.0
        "tasks": tasks if type(tasks) is int and tasks >= 0 else None,
    }


def _claims(endpoint: str | None, answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Returns the claims in the answer, or None for an error and for an endpoint that claims nothing."""
    match endpoint:
        case "claimWork" if answer:
            return [*map(_claimed, answer["tasks"])]
        case "claimTask" | "reclaimTask" if answer:
            return [_claimed(answer)]
    return None


def _claimed(claim: Mapping[str, Any]) -> Mapping[str, Any]:
    named = {name: claim[name] for name in ("runId", "takenUntil")}
    return {"taskId": claim["status"]["taskId"], **named}


def _received(message: QueuedMessage) -> Mapping[str, Any]:
    """Returns a message. Its secrets, receipt and signature, are digests: a claim has the same digests."""
    known: dict[str, Any] = {
        "messageId": message.lease.message_id,
        "receipt": _digest(message.lease.receipt),
        "dequeueCount": message.dequeue_count,
    }
    with suppress(ValueError):
        task_id, run_id, signature = read_message(message.text)
        known |= {"taskId": task_id, "runId": run_id, "signature": _digest(signature)}
    return known


def _digest(secret: str) -> str:
    """Returns eight characters that show whether two secrets are the same, but not the secret."""
    return sha256(secret.encode()).hexdigest()[:8]


def shown_target(target: str) -> str:
    """Returns a path and its query, with *** in place of signatures and possible secrets."""
    path, has_query, query = target.partition("?")
    shown = without_signature(path)
    return f"{shown}?{'&'.join(_shown_query(query))}" if has_query else shown


def _shown_query(query: str) -> Iterator[str]:
    hides = False
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name in _SHOWN and _PLAIN.fullmatch(value) and without_signature(value) == value:
            yield pair
        else:
            hides = True
    if hides:
        yield "***"


def _is_valid(name: str, value: Any) -> bool:
    """Whether the value matches its parameter. A body may have any JSON in its place."""
    return isinstance(value, str) and re.fullmatch(PARAMETERS[name], value) is not None
