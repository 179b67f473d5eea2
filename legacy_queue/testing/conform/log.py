"""What a worker did, as the request journal of a queue has it. The rules of ``conform`` read nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from legacy_queue.domain.times import parse_time

Run = tuple[str, int]  # taskId and runId

POLL, DELETE, UPLOAD = "azure.receive", "azure.delete", "upload"
REPORTS = ("reportCompleted", "reportFailed", "reportException")
OF_A_RUN = ("reclaimTask", "createArtifact", UPLOAD, *REPORTS)
JUDGED = ("pollTaskUrls", POLL, DELETE, "claimTask", "claimWork", "cancelTask", *OF_A_RUN)
_ROUNDED = timedelta(milliseconds=2)  # the times of the journal
SETTLED = timedelta(seconds=3)  # in which what follows at once has come
PATIENCE = timedelta(seconds=12)  # in which a worker has polled or repeated a call


@dataclass(frozen=True, eq=False)
class Request:
    """An entry of the journal. Its times are the queue's; its status is 0 if the worker got no answer."""

    wire: Mapping[str, Any]

    @cached_property
    def ended(self) -> datetime:
        return parse_time(self.wire["time"])

    @cached_property
    def begun(self) -> datetime:
        return self.ended - timedelta(milliseconds=self.wire["ms"])

    @property
    def status(self) -> int:
        return int(self.wire["status"])

    @property
    def call(self) -> str:
        return str(self.wire.get("endpoint", ""))

    @property
    def was_done(self) -> bool:
        return 0 < self.status < 400

    @property
    def was_refused(self) -> bool:
        return 400 <= self.status < 500

    @property
    def has_failed(self) -> bool:
        """Whether there was no answer, or a 5xx."""
        return not (self.was_done or self.was_refused)

    @property
    def run(self) -> Run | None:
        return (self.wire["taskId"], self.wire["runId"]) if "runId" in self.wire else None

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages of a poll that was answered."""
        return self.wire.get("messages", ()) if self.was_done else ()

    @property
    def claims(self) -> Mapping[Run, datetime]:
        """The takenUntil of each run that a claim or a reclaim was answered."""
        claims = self.wire.get("claims", ()) if self.was_done else ()
        return {(claim["taskId"], claim["runId"]): parse_time(claim["takenUntil"]) for claim in claims}

    def follows(self, other: "Request") -> bool:
        """Whether this request began after the answer to the other."""
        later = self.wire["sequence"] > other.wire["sequence"]
        return bool(later) and self.begun + _ROUNDED >= other.ended

    def is_same(self, other: "Request") -> bool:
        """Whether the other request is the same call."""
        return all(self.wire[name] == other.wire[name] for name in ("method", "path"))


class Message(NamedTuple):
    """A message with the poll that has received it; ``run`` is None if it names no task."""

    poll: Request
    wire: Mapping[str, Any]
    run: Run | None


class Term(NamedTuple):
    """A worker's right to a run from the answer of a claim (number 0) or of a reclaim until ``end``."""

    run: Run
    number: int
    request: Request
    end: datetime


@dataclass(frozen=True)
class Log:
    """The requests of one worker, in the order of their answers.

    ``situation`` is the name of what was caused, "" for an observed server. ``tasks`` has what each task
    does, by its id. ``worker`` is the worker's name, if it was given one. ``stopped`` is when the worker got
    a SIGTERM, ``end`` when the queue was asked for the requests.
    """

    requests: Sequence[Request]
    end: datetime
    situation: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    worker: str | None = None
    stopped: datetime | None = None

    def of(self, *calls: str) -> list[Request]:
        """The requests of these calls."""
        return [request for request in self.requests if request.call in calls]

    def about(self, run: Run | None, *calls: str) -> list[Request]:
        """The requests of these calls about the run."""
        return [request for request in self.of(*calls) if request.run == run]

    def after(self, request: Request, *calls: str) -> list[Request]:
        """The requests of these calls that begin after the end of that request."""
        return [other for other in self.of(*calls) if other.follows(request)]

    def is_held(self, request: Request) -> bool:
        """Whether the worker had claimed the run of the request when it began, and not reported it."""
        claims = [claim for claim in self.claims if claim.run == request.run]
        reports = self.about(request.run, *REPORTS)
        return any(request.follows(claim.request) for claim in claims) and not any(
            report.was_done and request.follows(report) for report in reports
        )

    def again(self, request: Request) -> list[Request]:
        """The same call, later."""
        return [other for other in self.after(request, request.call) if request.is_same(other)]

    def is_over(self, request: Request, after: timedelta = SETTLED) -> bool:
        """Whether what has to follow the request in this time has come, if it comes at all."""
        return request.ended + after <= min(self.end, self.stopped or self.end)

    @cached_property
    def messages(self) -> Sequence[Message]:
        return [
            Message(poll, wire, (wire["taskId"], wire["runId"]) if "taskId" in wire else None)
            for poll in self.of(POLL)
            for wire in poll.messages
        ]

    @cached_property
    def claims(self) -> Sequence[Term]:
        """The first term of each claim that was answered."""
        requests = self.of("claimTask", "claimWork")
        return [Term(run, 0, request, end) for request in requests for run, end in request.claims.items()]

    def terms(self) -> Iterator[Term]:
        """Each claim that was answered, and each reclaim."""
        for claim in self.claims:
            yield claim
            reclaims = [reclaim for reclaim in self.about(claim.run, "reclaimTask") if reclaim.was_done]
            for number, reclaim in enumerate(reclaims, 1):
                yield Term(claim.run, number, reclaim, reclaim.claims[claim.run])

    def reports(self, run: Run) -> list[Request]:
        """The reports of the run that were accepted."""
        return [report for report in self.about(run, *REPORTS) if report.was_done]


def spoken_protocol(requests: Sequence[Request]) -> str:
    """The protocol of a worker that has sent these requests."""
    calls = {request.call: request.wire for request in requests}
    if "claimWork" in calls:
        return "today" if str(calls["claimWork"]["path"]).startswith("/api/") else "claimwork"
    return "draft" if "signature" in calls.get("claimTask", ()) else "deployed"
