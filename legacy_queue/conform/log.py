"""What a worker did, from the journal of a queue's requests. The rules of ``conform`` read nothing else."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.times import parse_time
from legacy_queue.history.words import requester

POLL = "azure.receive"
DELETE = "azure.delete"
UPLOAD = "upload"
REPORTS = ("reportCompleted", "reportFailed", "reportException")
RUN_CALLS = ("reclaimTask", "createArtifact", UPLOAD, *REPORTS)
JUDGED = ("pollTaskUrls", POLL, DELETE, "claimTask", "claimWork", *RUN_CALLS)
# These times are for a machine on which a worker starts within three seconds. ``Log.pace`` is the factor
# for a slower machine.
QUIET_TIME = timedelta(seconds=3)  # a call that follows at once comes within this time
MAX_REACTION_TIME = timedelta(seconds=12)  # a worker repeats a call within this time
# A worker that sends nothing for this long counts as silent. It is longer than a claimWork, which takes up to
# 20 seconds.
_SILENCE = timedelta(seconds=30)
_LONG_CLAIM = timedelta(minutes=3, seconds=30)
_START = timedelta(seconds=3)
_MAX_PACE = 10.0


def judged(journal: Iterable[Mapping[str, Any]]) -> list["Request"]:
    """The requests of the journal that workers sent."""
    return [Request(entry) for entry in journal if entry.get("endpoint") in JUDGED]


@dataclass(frozen=True, eq=False)
class Request:
    """An entry of the journal. Its times are by the queue's clock. Status 0 means that it got no answer."""

    wire: Mapping[str, Any]

    @cached_property
    def ended(self) -> datetime:
        return parse_time(self.wire["time"])

    @cached_property
    def begun(self) -> datetime:
        return parse_time(self.wire["begun"])

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
        """Whether the worker got no answer, or a 5xx."""
        return not (self.was_done or self.was_refused)

    @property
    def run(self) -> RunKey | None:
        return (self.wire["taskId"], self.wire["runId"]) if "runId" in self.wire else None

    @property
    def reported_reason(self) -> Any:
        """The reason that the worker has sent with reportException."""
        return self.wire.get("reportedReason", self.wire.get("sentReason"))  # the second is the name of 0.1.0

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages in the answer to a poll."""
        return self.wire.get("messages", ()) if self.was_done else ()

    @property
    def claims(self) -> Mapping[RunKey, datetime]:
        """The takenUntil of each run in the answer to a claim or a reclaim."""
        claims = self.wire.get("claims", ()) if self.was_done else ()
        return {(claim["taskId"], claim["runId"]): parse_time(claim["takenUntil"]) for claim in claims}

    @property
    def runs(self) -> Set[RunKey]:
        """The runs that the request or its answer names."""
        received = {(wire["taskId"], wire["runId"]) for wire in self.messages if "taskId" in wire}
        return {*self.claims, *received, *([self.run] if self.run else [])}

    @property
    def urls(self) -> str | None:
        """When the signed URL of the request expires, or the signed URLs in its answer.

        All URLs of one answer expire in the same second, so this tells which answer a URL is from.
        """
        is_of_urls = self.call in (POLL, DELETE, "pollTaskUrls") and "expires" in self.wire
        return str(self.wire["expires"])[:19] if is_of_urls else None

    def follows(self, other: "Request") -> bool:
        """Whether this request began after the other was answered."""
        later = self.wire["sequence"] > other.wire["sequence"]
        return bool(later) and self.begun >= other.ended


class ReceivedMessage(NamedTuple):
    """A message, with the poll that received it. ``run`` is None if the message names no task."""

    poll: Request
    wire: Mapping[str, Any]
    run: RunKey | None


class ClaimPeriod(NamedTuple):
    """The time for which a worker holds a run: from the answer to a claim or a reclaim until ``end``.

    ``number`` is 0 for the claim, 1 for the first reclaim, and so on.
    """

    run: RunKey
    number: int
    request: Request
    end: datetime

    @property
    def is_long(self) -> bool:
        """Whether every healthy worker can reclaim in time.

        generic-worker reclaims three minutes before the end. If that is less than half a minute away, it does
        not reclaim at all.
        """
        return self.end - self.request.ended >= _LONG_CLAIM


@dataclass(frozen=True)
class Log:
    """The requests of one worker, in the order of their answers.

    - ``situation`` is the name of the situation, or "" if a running server was observed.
    - ``tasks`` has what each task does, and ``lasts`` how long its script runs, by taskId.
    - ``worker`` is the ``<workerGroup>/<workerId>`` that the worker should use, or None if that is unknown.
    - ``started`` and ``stopped`` are when the worker was started and when it got a SIGTERM.
    - ``end`` is when the journal was read. For an observed worker, which may have been stopped long before,
      it is when its last request began.
    - ``is_whole`` is False if earlier requests were dropped from the journal.
    """

    requests: Sequence[Request]
    end: datetime
    situation: str = ""
    tasks: Mapping[str, str] = field(default_factory=dict)
    lasts: Mapping[str, timedelta] = field(default_factory=dict)
    worker: str | None = None
    started: datetime | None = None
    stopped: datetime | None = None
    is_whole: bool = True

    def of(self, *calls: str) -> list[Request]:
        """The requests that make one of these calls."""
        return [request for request in self.requests if request.call in calls]

    def about(self, run: RunKey | None, *calls: str) -> list[Request]:
        """The requests that make one of these calls about the run."""
        return [request for request in self.of(*calls) if request.run == run]

    def after(self, request: Request, *calls: str) -> list[Request]:
        """The requests that make one of these calls after the given request was answered."""
        return [other for other in self.of(*calls) if other.follows(request)]

    def is_of_worker(self, request: Request) -> bool:
        """Whether the worker had claimed the run of the request when it began."""
        return any(request.follows(claim.request) for claim in self.claims if claim.run == request.run)

    def again(self, request: Request) -> list[Request]:
        """Later requests with the same method and path."""
        same = request.wire["method"], request.wire["path"]
        later = self.after(request, request.call)
        return [other for other in later if (other.wire["method"], other.wire["path"]) == same]

    @cached_property
    def pace(self) -> float:
        """The factor, from 1 to 10, by which this worker may take longer than usual for everything it does.

        It comes from the time that the worker took to start, which grows with the load of the machine.
        """
        if not self.started or not self.requests:
            return 1.0
        return min(max((self.requests[0].begun - self.started) / _START, 1.0), _MAX_PACE)

    @cached_property
    def last_moment(self) -> datetime:
        """When the log ends, or when the worker got a SIGTERM, if that was earlier."""
        return min(self.end, self.stopped or self.end)

    def has_gone_on(self, since: datetime, *calls: str) -> bool:
        """Whether the worker made one of these calls (by default any) after ``since``, or fell silent."""
        requests = self.of(*calls) if calls else self.requests
        return any(since <= other.begun <= self.last_moment for other in requests) or self.is_silent

    @cached_property
    def is_silent(self) -> bool:
        """Whether the worker does nothing more, and waits for no script."""
        busy = [request.ended for request in self.requests]
        busy += [end for claim in self.claims if (end := self.script_end(claim.run))]
        return bool(busy) and max(busy) + _SILENCE * self.pace <= self.last_moment

    def script_end(self, run: RunKey) -> datetime | None:
        """When the script of a claimed run ends if nothing stops it. None if that is not known."""
        claims = [claim.request.ended for claim in self.claims if claim.run == run]
        lasts = self.lasts.get(run[0])
        return None if lasts is None or not claims else claims[0] + lasts

    @cached_property
    def messages(self) -> Sequence[ReceivedMessage]:
        return [
            ReceivedMessage(poll, wire, (wire["taskId"], wire["runId"]) if "taskId" in wire else None)
            for poll in self.of(POLL)
            for wire in poll.messages
        ]

    @cached_property
    def claims(self) -> Sequence[ClaimPeriod]:
        """One period for each run that the worker claimed, until the takenUntil of that claim."""
        requests = self.of("claimTask", "claimWork")
        return [
            ClaimPeriod(run, 0, request, end) for request in requests for run, end in request.claims.items()
        ]

    def periods(self) -> Iterator[ClaimPeriod]:
        """One period for each claim and each reclaim that succeeded."""
        for claim in self.claims:
            yield claim
            reclaims = [reclaim for reclaim in self.about(claim.run, "reclaimTask") if reclaim.was_done]
            for number, reclaim in enumerate(reclaims, 1):
                yield ClaimPeriod(claim.run, number, reclaim, reclaim.claims[claim.run])

    def reports(self, run: RunKey) -> list[Request]:
        """The reports of the run that were accepted."""
        return [report for report in self.about(run, *REPORTS) if report.was_done]


def spoken_protocol(requests: Sequence[Request]) -> str:
    """The protocol that a worker speaks if it sends these requests."""
    calls = {request.call: request.wire for request in requests}
    if "claimWork" in calls:
        return "today" if str(calls["claimWork"]["path"]).startswith("/api/") else "claimwork"
    return "draft" if "signature" in calls.get("claimTask", ()) else "deployed"


def logs_by_worker(requests: Sequence[Request], pool: str, is_whole: bool) -> list[Log]:
    """The log of each worker that has claimed work of the pool.

    A request belongs to the worker that it names. If it names none, and its client has claimed for one worker
    only, it belongs to that worker; otherwise to the worker that claimed its run. A poll names no worker, so
    ``_by_urls`` finds it. A request that may be from several workers is in no log.
    """
    runs = {run for request in requests if request.wire.get("taskQueueId") == pool for run in request.runs}
    own = [each for each in requests if each.wire.get("taskQueueId") == pool or runs & each.runs]
    named = [(requester(claim.wire), claim) for claim in own if "workerId" in claim.wire]
    of_client = _only((claim.wire.get("clientId"), name) for name, claim in named)
    of_run: Mapping[RunKey | None, str] = {run: name for name, claim in named for run in claim.claims}
    of_urls = _by_urls(own, of_client)
    workers = {name for name, _ in named}
    found: dict[str, list[Request]] = {}
    for request in own:
        by = requester(request.wire)
        if by not in workers:
            by_client = of_client.get(request.wire.get("clientId")) or of_run.get(request.run)
            by = (of_urls.get(request.urls) if request.urls else by_client) or ""
        found.setdefault(by, []).append(request)
    return [
        Log(found[name], max(each.begun for each in found[name]), worker=name, is_whole=is_whole)
        for name in sorted(workers)
    ]


def _by_urls(requests: Sequence[Request], of_client: Mapping[Any, str | None]) -> Mapping[Any, str | None]:
    """Which worker polls with the URLs of one answer of pollTaskUrls, by when these URLs expire.

    It is the worker that claims the runs in the messages that these polls received. If they led to no claim,
    it is the only worker of the client that got the URLs. But if that client polled with other URLs in
    between, it has several workers. Then the value is None, because nobody knows which of them polled. URLs
    of two answers that expire in the same second are left out.
    """
    groups: dict[str, list[Request]] = {}
    for request in requests:
        if request.urls:
            groups.setdefault(request.urls, []).append(request)
    claims = [claim for claim in requests if claim.call == "claimTask"]
    claimed = _only(
        (urls, requester(claim.wire))
        for urls, group in groups.items()
        for poll in group
        for run in poll.runs
        for claim in [each for each in claims if each.run == run and each.follows(poll)][:1]
    )
    asked = _only(
        (urls, of_client.get(call.wire.get("clientId")) or "")
        for urls, group in groups.items()
        for call in group
        if call.call == "pollTaskUrls"
    )
    found: dict[str, str | None] = {}
    for urls, group in groups.items():
        same = [other for other in groups if other != urls and asked.get(other) == asked.get(urls)]
        meanwhile = any(
            group[0].begun < each.begun < group[-1].begun for other in same for each in groups[other]
        )
        if sum(call.call == "pollTaskUrls" for call in group) < 2:
            found[urls] = claimed[urls] if urls in claimed else None if meanwhile else asked.get(urls)
    return found


def _only(pairs: Iterable[tuple[Any, str]]) -> dict[Any, str | None]:
    """The name for each key, or None if there are several names."""
    found: dict[Any, str | None] = {}
    for key, name in pairs:
        found[key] = name if found.get(key, name) == name else None
    return found
