"""Scenarios: a few tasks, and calls with pauses between them, for any clock."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.times import format_time, from_epoch, parse_time
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import QueueNotFound
from legacy_queue.services.assembly import build_services
from legacy_queue.services.claims import ClaimProof
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.stores import Storage
from tests.services.harness import ISSUER, PREFIX, SECRET, UPLOAD_URL, Message, task_body, visible_at
from tests.services.ports import FakeBroker

NO_TIME = timedelta(0)
DRIFT, SAS_LIFE = timedelta(minutes=15), timedelta(minutes=30)
CLAIM = INVISIBLE = 1.0  # in units: how long a claim lasts, and a polled message is invisible
MAX_DURATION = 5.0  # units: all pauses of a scenario
WORKERS = Worker("group", "alice"), Worker("group", "bob")
REPORTS = ("completed", "completed"), ("failed", "failed"), ("exception", "worker-shutdown")
CALLS = (
    "poll",
    "claim_message",
    "claim",
    "claim",
    "claim_next",
    "reclaim",
    "report",
    "report",
    "cancel",
    "rerun",
)
PAUSES = 0.2, 0.35, 0.5, 0.8, 1.3


@dataclass(frozen=True)
class Planned:
    """A task; ``deadline`` in units after its creation, ``dependencies`` are numbers of tasks before it."""

    deadline: float
    retries: int
    dependencies: tuple[int, ...]
    requires: str


@dataclass(frozen=True)
class Step:
    """A call after a pause, in units. ``choice`` says by which worker, with which message or as what."""

    pause: float
    call: str
    task: int
    choice: int = 0


@dataclass(frozen=True)
class Scenario:
    """In its replay a claim lasts ``claim`` seconds, and the threads of a server run or do not."""

    tasks: tuple[Planned, ...]
    steps: tuple[Step, ...]
    claim: int
    has_threads: bool


_STEPS = (Step(0, "create", 0), Step(0, "create", 1), Step(0.2, "claim", 0), Step(0.5, "poll", 0))
CERTAIN = (  # a dead worker's task is retried, and by its deadline it frees another; it has no retries left
    Scenario((Planned(2.0, 1, (), "all-completed"), Planned(3.5, 0, (0,), "all-resolved")), _STEPS, 60, True),
    Scenario((Planned(4.0, 0, (), "all-completed"), Planned(2.0, 0, (), "all-resolved")), _STEPS, 7, False),
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    deadlines = draw(st.lists(st.integers(14, 42), min_size=1, max_size=3, unique=True))
    numbers = range(len(deadlines))
    tasks = tuple(
        Planned(
            deadlines[number] / 10,
            draw(st.integers(0, 2)),
            tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=1)))) if number else (),
            draw(st.sampled_from(("all-completed", "all-resolved"))),
        )
        for number in numbers
    )
    pauses, picks = st.sampled_from(PAUSES), st.sampled_from(numbers)
    more = st.builds(Step, pauses, st.sampled_from(CALLS), picks, st.integers(0, 5))
    steps = [Step(0, "create", number) for number in numbers]
    for step in draw(st.lists(more, min_size=5, max_size=12)):
        if sum(one.pause for one in steps) + step.pause <= MAX_DURATION:
            steps.append(step)
    # after ten minutes the sweeper offers again what waits: then there may be messages twice
    claims = (1, 7, 60) if any(step.call == "poll" for step in steps) else (1, 60, 1200)
    return Scenario(tasks, tuple(steps), draw(st.sampled_from(claims)), draw(st.booleans()))


class Server:
    """The services on memory storage. A unit is how long a claim lasts."""

    def __init__(self, clock: Clock, unit: timedelta) -> None:
        self.clock, self.unit, self.broker = clock, unit, FakeBroker()
        self.account = EmbeddedAccount(None, clock, "http://127.0.0.1:1/azure", PREFIX)
        self.storage = Storage(self.account, PREFIX, clock)
        settings = ServiceSettings(
            [SECRET],
            ISSUER,
            CLAIM * unit,
            SAS_LIFE,
            INVISIBLE * unit,
            NO_TIME,
            UPLOAD_URL,
            page_pause=NO_TIME,
        )
        self.services = build_services(self.storage, self.broker, clock, settings)


@dataclass
class Calls:
    """Makes the calls of a scenario on a server, and describes the results without times."""

    server: Server
    planned: Sequence[Planned]
    offset: Callable[[], timedelta]  # of the server's clock from the real time
    ids: list[str] = field(default_factory=lambda: [slugid() for _ in range(3)])
    polled: list[Message] = field(default_factory=list)
    visible_again: list[tuple[datetime, datetime]] = field(default_factory=list)

    def make(self, step: Step) -> Any:
        """The answer, or the refusal."""
        try:
            return getattr(self, step.call)(step)
        except QueueError as refusal:
            text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", refusal.message)
            for number, task_id in enumerate(self.ids):
                text = text.replace(task_id, f"<task {number}>")
            return refusal.code, text

    def create(self, step: Step) -> Any:
        planned, now = self.planned[step.task], self.server.clock.now()
        changes = {
            "workerType": self.ids[0],
            "deadline": format_time(now + planned.deadline * self.server.unit),
            "retries": planned.retries,
            "dependencies": [self.ids[task_id] for task_id in planned.dependencies],
            "requires": planned.requires,
        }
        return story(self.server.services.tasks.create(self.ids[step.task], task_body(now, **changes)))

    def poll(self, _step: Step) -> Any:
        """All that is visible, and whether the signed URLs end when they should by the real time."""
        before = self.server.clock.now()
        queue = WorkQueue("provisioner", self.ids[0], "lowest").name(PREFIX)
        try:
            received = self.server.account.queue(queue).receive(32, INVISIBLE * self.server.unit)
        except QueueNotFound:
            received = []
        self.visible_again += [
            (before + INVISIBLE * self.server.unit, visible_at(message)) for message in received
        ]
        messages = sorted(
            map(Message.read, received), key=lambda one: (self.ids.index(one.task_id), one.run_id)
        )
        self.polled = [*messages, *self.polled]
        urls = self.server.services.polling.poll_urls("provisioner", self.ids[0], "client")
        is_real = self._is_now(parse_time(urls["expires"]) - SAS_LIFE, before)
        return [(self.ids.index(message.task_id), message.run_id) for message in messages], is_real

    def claim_message(self, step: Step) -> Any:
        """Claim as the draft says, with any message that was polled before."""
        if not self.polled:
            return None
        message = self.polled[step.choice // 2 % len(self.polled)]
        return self._claimed(message.task_id, message.run_id, step, message.proof)

    def claim(self, step: Step) -> Any:
        """Claim the last run, as the deployed protocol does."""
        return self._claimed(self.ids[step.task], self._last(self.ids[step.task]), step)

    def claim_next(self, step: Step) -> Any:
        """Claim the run after the last, as the held message says."""
        return self._claimed(self.ids[step.task], self._last(self.ids[step.task]) + 1, step)

    def reclaim(self, step: Step) -> Any:
        before = self.server.clock.now()
        return self._claim(
            self.server.services.claims.reclaim(self.ids[step.task], self._last(self.ids[step.task])),
            before,
        )

    def report(self, step: Step) -> Any:
        """Report a running task, if there is one."""
        running = [task for task in self.tasks() if task.state == "running"]
        task_id = running[step.task % len(running)].task_id if running else self.ids[step.task]
        report = REPORTS[step.choice % len(REPORTS)]
        return story(self.server.services.tasks.report(task_id, self._last(task_id), *report))

    def cancel(self, step: Step) -> Any:
        return story(self.server.services.tasks.cancel(self.ids[step.task]))

    def rerun(self, step: Step) -> Any:
        return story(self.server.services.tasks.rerun(self.ids[step.task]))

    def _claimed(self, task_id: str, run_id: int, step: Step, proof: ClaimProof = ClaimProof()) -> Any:  # noqa: B008 - it is frozen
        services, before = self.server.services, self.server.clock.now()
        worker = WORKERS[step.choice % 2]
        task = services.tasks.recall(task_id)
        return self._claim(services.claims.claim(task, run_id, worker, proof), before)

    def _claim(self, claim: Any, before: datetime) -> Any:
        """The claim, and whether its credentials begin and end when they should by the real time."""
        certificate = json.loads(claim["credentials"]["certificate"])
        start, expiry = from_epoch(certificate["start"]), from_epoch(certificate["expiry"])
        end = parse_time(claim["takenUntil"]) - self.offset()
        is_real = self._is_now(start + DRIFT, before) and expiry == end + DRIFT
        task_id = claim["status"]["taskId"]
        return self.ids.index(task_id), claim["runId"], claim["workerId"], is_real, story(self._load(task_id))

    def _is_now(self, time: datetime, before: datetime) -> bool:
        """Whether ``time`` is the real time of a call that began at ``before`` on the server's clock."""
        offset = self.offset()
        return before - offset <= time <= self.server.clock.now() - offset

    def _last(self, task_id: str) -> int:
        task = self._load(task_id)
        return max(0, len(task.runs) - 1) if task else 0

    def _load(self, task_id: str) -> Task | None:
        stored = self.server.storage.tasks.load(task_id)
        return stored.task if stored else None

    def tasks(self) -> list[Task]:
        return [task for task_id in self.ids if (task := self._load(task_id))]

    def task(self, number: int) -> Task | None:
        return self._load(self.ids[number])

    def outcome(self) -> Any:
        """The end of each task, its events in order, and in which order tasks ended by an exception."""
        events = [
            (
                one.exchange,
                one.payload.get("taskGroupId") or one.payload["status"]["taskId"],
                one.payload.get("runId"),
            )
            for one in self.server.broker.published
        ]
        return {
            "tasks": [story(task) for task in self.tasks()],
            "events": [
                [(name, run) for name, about, run in events if about == task_id] for task_id in self.ids
            ],
            "exceptions": [
                self.ids.index(about)
                for name, about, _ in events
                if name == "task-exception" and about in self.ids
            ],
        }


def story(task: Task | None) -> Any:
    """The runs and the state of the task, without times."""
    if task is None:
        return None
    runs = [
        (run.state, run.reason_created, run.reason_resolved, run.worker and run.worker.worker_id)
        for run in task.runs
    ]
    return task.state, task.retries_left, runs
