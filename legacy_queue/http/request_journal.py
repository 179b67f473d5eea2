"""The last requests and their answers, for tests to read. No secret of a request is ever shown."""

import itertools
import re
import time
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from legacy_queue.domain.fault import RunKey
from legacy_queue.domain.times import format_time
from legacy_queue.http.parameters import PARAMETERS
from legacy_queue.http.request_log import RequestRecord, without_signature

_SIZE = 10_000  # requests
_MAX_TARGET = 2000  # characters
_MAX_REASON = 1000  # characters
_MAX_NAME = 100  # characters
# parameters of queries; of Azure, without the parameters that sign a URL
_SHOWN = {*PARAMETERS, "numofmessages", "visibilitytimeout", "timeout", "peekonly", "comp"}
_SUBJECT = ("taskId", "runId", "workerGroup", "workerId")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+%-]{0,200}")


class _Entry(NamedTuple):
    """The fields of a request; ``task_id`` to ``worker_id`` are as they were sent."""

    sequence: int
    answered: float  # seconds since 1970
    ms: float
    request_id: str
    method: str
    target: str
    endpoint: str | None
    status: int
    code: str | None
    reason: str | None
    client_id: str | None
    task_id: str | None
    run_id: str | None
    worker_group: str | None
    worker_id: str | None
    runs: Sequence[RunKey]
    fault: str | None

    def to_wire(self) -> dict[str, Any]:
        """The entry without its unknown fields."""
        wire = {
            "endpoint": self.endpoint,
            "code": self.code,
            "reason": self.reason and without_signature(self.reason.partition("\n")[0]),
            "clientId": self.client_id,
            **self._subject(),
            "fault": self.fault,
        }
        return {
            "sequence": self.sequence,
            "time": format_time(datetime.fromtimestamp(self.answered, UTC)),
            "requestId": self.request_id,
            "method": self.method,
            "path": shown_target(self.target),
            "status": self.status,
            "ms": self.ms,
            **{name: value for name, value in wire.items() if value is not None},
        }

    def _subject(self) -> dict[str, Any]:
        """The task, the run and the worker of the request; several tasks are ``taskIds``."""
        sent = zip(_SUBJECT, (self.task_id, self.run_id, self.worker_group, self.worker_id), strict=True)
        # an invalid value may be a secret
        subject: dict[str, Any] = {
            name: value for name, value in sent if value is not None and _is_valid(name, value)
        }
        if "runId" in subject:
            subject["runId"] = int(subject["runId"])
        if len(self.runs) == 1:
            ((subject["taskId"], subject["runId"]),) = self.runs
        elif self.runs:
            subject["taskIds"] = [task_id for task_id, _ in self.runs]
        return subject


class Journal:
    """The last 10,000 requests, except those to the endpoints ``excluded``."""

    def __init__(self, excluded: Container[str | None]) -> None:
        self._excluded = excluded
        self._numbers = itertools.count(1)
        self._entries: deque[tuple[Any, ...]] = deque(maxlen=_SIZE)  # appended to by several threads

    def answered(self, record: RequestRecord) -> None:
        """Record a request, with only the fields that are shown."""
        name, params = record.call or (record.endpoint, {})
        if name in self._excluded:
            return
        body = record.payload[1] if record.payload else None
        code, reason = record.error
        worker = body if isinstance(body, dict) and "workerId" in body else params
        # a plain tuple without containers: the garbage collector stops tracking it
        entry = (
            next(self._numbers),
            time.time(),
            record.ms,
            record.request_id,
            record.method,
            record.target[:_MAX_TARGET],
            name,
            record.status,
            code,
            reason and reason[:_MAX_REASON],
            record.client_id,
            params.get("taskId"),
            params.get("runId"),
            _name(worker.get("workerGroup")),
            _name(worker.get("workerId")),
            record.runs,
            record.fault,
        )
        self._entries.append(entry)

    def requests(self, limit: int, after: int | None) -> Sequence[Mapping[str, Any]]:
        """The last ``limit`` requests, oldest first; or the first ones after the number ``after``."""
        entries = sorted(self._entries)
        wanted = (
            entries[-limit:] if after is None else [entry for entry in entries if entry[0] > after][:limit]
        )
        return [_Entry(*entry).to_wire() for entry in wanted]


def shown_target(target: str) -> str:
    """A path and its query, with *** in place of signatures and possible secrets."""
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


def _name(value: Any) -> str | None:
    """The value if it is text: a body may hold any JSON."""
    return value[:_MAX_NAME] if isinstance(value, str) else None


def _is_valid(name: str, value: str) -> bool:
    return re.fullmatch(PARAMETERS[name], value) is not None
