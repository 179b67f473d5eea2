"""What a worker did, as the request journal of a queue has it. The rules of ``conform`` read nothing else."""

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
# On a machine on which a worker starts within three seconds; longer on a slower one: ``Log.pace``.
QUIET_TIME = timedelta(seconds=3)  # in which what follows at once has come
MAX_REACTION_TIME = timedelta(seconds=12)  # in which a worker has repeated a call
_SILENCE = timedelta(seconds=30)  # after which nothing comes any more; claimWork may take 20 seconds
_LONG_CLAIM = timedelta(minutes=3, seconds=30)
_START = timedelta(seconds=3)
_MAX_PACE = 10.0


def judged(journal: Iterable[Mapping[str, Any]]) -> list["Request"]:
    """The requests of workers in the journal."""
    return [Request(entry) for entry in journal if entry.get("endpoint") in JUDGED]


@dataclass(frozen=True, eq=False)
class Request:
    """An entry of the journal. Its times are the queue's; its status is 0 if the worker got no answer."""

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
        """Whether there was no answer, or a 5xx."""
        return not (self.was_done or self.was_refused)

    @property
    def run(self) -> RunKey | None:
        return (self.wire["taskId"], self.wire["runId"]) if "runId" in self.wire else None

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages of a poll that was answered."""
        return self.wire.get("messages", ()) if self.was_done else ()

    @property
    def claims(self) -> Mapping[RunKey, datetime]:
        """The takenUntil of each run that a claim or a reclaim was answered."""
        claims = self.wire.get("claims", ()) if self.was_done else ()
        return {(claim["taskId"], claim["runId"]): parse_time(claim["takenUntil"]) for claim in claims}

    @property
    def runs(self) -> Set[RunKey]:
        """The runs that the request is about, or that its answer has."""
        received = {(wire["taskId"], wire["runId"]) for wire in self.messages if "taskId" in wire}
        return {*self.claims, *received, *([self.run] if self.run else [])}

    @property
    def urls(self) -> str | None:
        """When the signed URL expires, or those of the answer: the same for all that are made in a second."""
        is_of_urls = self.call in (POLL, DELETE, "pollTaskUrls") and "expires" in self.wire
        return str(self.wire["expires"])[:19] if is_of_urls else None

    def follows(self, other: "Request") -> bool:
        """Whether this request began after the answer to the other."""
        later = self.wire["sequence"] > other.wire["sequence"]
        return bool(later) and self.begun >= other.ended


class ReceivedMessage(NamedTuple):
    """A message with the poll that has received it; ``run`` is None if it names no task."""

    poll: Request
    wire: Mapping[str, Any]
    run: RunKey | None


class ClaimPeriod(NamedTuple):
    """A worker's right to a run from the answer of a claim (number 0) or of a reclaim until ``end``."""

    run: RunKey
    number: int
    request: Request
    end: datetime

    @property
    def is_long(self) -> bool:
        """Whether any healthy worker reclaims in time. generic-worker does so three minutes before the end,
        and not at all if that is less than half a minute away.
        """
        return self.end - self.request.ended >= _LONG_CLAIM


@dataclass(frozen=True)
class Log:
    """The requests of one worker, in the order of their answers.

    ``situation`` is the name of what was caused, "" for an observed server. ``tasks`` has what each task
    does, and ``lasts`` how long its script runs, by its id. ``worker`` is the worker's name, if it was given
    one; it was ``started`` and got a SIGTERM (``stopped``) then. ``end`` is when the queue was asked
    for the requests; of an observed worker, which may have been stopped, when its last request began.
    ``is_whole`` is False if earlier requests were dropped from the journal.
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
        """The requests of these calls."""
        return [request for request in self.requests if request.call in calls]

    def about(self, run: RunKey | None, *calls: str) -> list[Request]:
        """The requests of these calls about the run."""
        return [request for request in self.of(*calls) if request.run == run]

    def after(self, request: Request, *calls: str) -> list[Request]:
        """The requests of these calls that begin after the end of that request."""
        return [other for other in self.of(*calls) if other.follows(request)]

    def is_of_worker(self, request: Request) -> bool:
        """Whether the worker had claimed the run of the request when it began."""
        return any(request.follows(claim.request) for claim in self.claims if claim.run == request.run)

    def again(self, request: Request) -> list[Request]:
        """The same call, later."""
        same = request.wire["method"], request.wire["path"]
        later = self.after(request, request.call)
        return [other for other in later if (other.wire["method"], other.wire["path"]) == same]

    @cached_property
    def pace(self) -> float:
        """How many times as long as usual this worker may take for all that it does, from 1 to 10.

        Judged by the time that it took to start, which grows with the load of the machine.
        """
        if not self.started or not self.requests:
            return 1.0
        return min(max((self.requests[0].begun - self.started) / _START, 1.0), _MAX_PACE)

    @cached_property
    def last_moment(self) -> datetime:
        """When the log ends, or the worker got a SIGTERM."""
        return min(self.end, self.stopped or self.end)

    def has_gone_on(self, since: datetime, *calls: str) -> bool:
        """Whether the worker made one of these calls, by default any, after that time, or fell silent."""
        requests = self.of(*calls) if calls else self.requests
        return any(since <= other.begun <= self.last_moment for other in requests) or self.is_silent

    @cached_property
    def is_silent(self) -> bool:
        """Whether the worker does nothing any more, and no script runs for which it may wait."""
        busy = [request.ended for request in self.requests]
        busy += [end for claim in self.claims if (end := self.script_end(claim.run))]
        return bool(busy) and max(busy) + _SILENCE * self.pace <= self.last_moment

    def script_end(self, run: RunKey) -> datetime | None:
        """When the script of a claimed run ends if nothing stops it; None if that is not known."""
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
        """The first period of each claim that was answered."""
        requests = self.of("claimTask", "claimWork")
        return [
            ClaimPeriod(run, 0, request, end) for request in requests for run, end in request.claims.items()
        ]

    def periods(self) -> Iterator[ClaimPeriod]:
        """Each claim that was answered, and each reclaim."""
        for claim in self.claims:
            yield claim
            reclaims = [reclaim for reclaim in self.about(claim.run, "reclaimTask") if reclaim.was_done]
            for number, reclaim in enumerate(reclaims, 1):
                yield ClaimPeriod(claim.run, number, reclaim, reclaim.claims[claim.run])

    def reports(self, run: RunKey) -> list[Request]:
        """The reports of the run that were accepted."""
        return [report for report in self.about(run, *REPORTS) if report.was_done]


def spoken_protocol(requests: Sequence[Request]) -> str:
    """The protocol of a worker that has sent these requests."""
    calls = {request.call: request.wire for request in requests}
    if "claimWork" in calls:
        return "today" if str(calls["claimWork"]["path"]).startswith("/api/") else "claimwork"
    return "draft" if "signature" in calls.get("claimTask", ()) else "deployed"


def logs_by_worker(requests: Sequence[Request], pool: str, is_whole: bool) -> list[Log]:
    """The log of each worker that has claimed work of the pool. What may be of several is in none.

    A request is of the worker that it names, else of the only one for which its client has claimed, else of
    the one that has claimed its run. A poll names no worker: see ``_by_urls``.
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
    """The worker that polls by the URLs of an answer of pollTaskUrls, by the time when these expire.

    It is the one that claims for their messages. Without a message it is the only one of their client, unless
    that polls by other URLs meanwhile: then the client has a further worker.
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
    """The only name for each key; None if there are several."""
    found: dict[Any, str | None] = {}
    for key, name in pairs:
        found[key] = name if found.get(key, name) == name else None
    return found
