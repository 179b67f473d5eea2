"""Records which answers clients got, and checks that they and the stored rows keep the queue's promises.

It is written without the services. It only knows the answers to the calls, the events that the broker
delivered, and what is stored. If a promise is broken, Broken is raised immediately, or by ``check`` while
time passes, or by ``check_end``.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.events import Event
from legacy_queue.domain.messages import read_message, signature_is_valid
from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import parse_time
from legacy_queue.ports.queue import QueueNotFound
from legacy_queue.stores import ArtifactStore, TaskStore
from tests.simulation.world import PREFIX, World

# The time within which another process goes on with the work of a killed one: 30 s for each of three
# processes that are killed one after the other, and some more for failed calls.
_PROMPT = timedelta(seconds=100)
# The time within which the sweeper replaces a lost message: the task must be pending for ten minutes, then it
# takes up to ten minutes until the sweeper comes. The sweeper cannot notice while the pool has as many
# messages as tasks.
_SWEPT = timedelta(minutes=22)
# so shortly before the deadline, no message is held, because the deadline ends the claim
_NOT_HELD = timedelta(seconds=4)

RESOLVED = {"completed", "failed", "exception"}
_Arrivals = Mapping[str, Sequence[tuple[datetime, Event]]]


class Broken(AssertionError):
    """A promise is broken. ``about`` is the taskId or taskGroupId."""

    def __init__(self, promise: str, about: str, why: str) -> None:
        super().__init__(f"{promise}: {about}: {why}")
        self.promise = promise
        self.about = about


@dataclass
class KnownClaim:
    """A claim of a run, as its worker knows it."""

    worker: str
    until: datetime


@dataclass
class KnownTask:
    """What clients know about a task from their calls and the answers."""

    body: Mapping[str, Any]
    begun: datetime  # when the first createTask call began
    # when createTask was answered, None before that
    created: datetime | None = None
    holders: dict[int, KnownClaim] = field(default_factory=dict)
    # for each run, the reports that were sent and those that were accepted
    reported: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    accepted: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    # the run and the name of each createArtifact call that was answered
    artifacts: list[tuple[int, str]] = field(default_factory=list)
    # which of the calls cancel, rerun and schedule somebody has tried
    tried: set[str] = field(default_factory=set)
    # whether somebody tried to create it with another definition, and the retries in the definitions that
    # were accepted
    has_rival: bool = False
    answered: set[int | None] = field(default_factory=set)
    lacks_message: datetime | None = None

    @property
    def group_id(self) -> str:
        return str(self.body["taskGroupId"])


@dataclass
class KnownGroup:
    """What clients know about a group. ``sealing`` means that somebody has tried to seal it."""

    sealing: bool = False
    sealed: datetime | None = None


class Record:
    """The answers in this world, and the checks of the promises."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks = TaskStore(world.account.table(f"{PREFIX}tasks"))
        self._artifacts = ArtifactStore(world.account.table(f"{PREFIX}artifacts"))
        self._stored: dict[str, Task | None] = {}
        self.known: dict[str, KnownTask] = {}
        self._groups: dict[str, KnownGroup] = defaultdict(KnownGroup)
        self._skew = timedelta(seconds=2 * world.faults.skew)  # two clocks may differ by this much
        self._disconnecting: set[str] = set()

    # Calls and answers

    def creating(self, task_id: str, body: Mapping[str, Any]) -> None:
        whole = {"taskGroupId": task_id, "dependencies": [], **body}
        known = self.known.setdefault(task_id, KnownTask(whole, self._world.clock.now()))
        known.has_rival |= body.get("retries") != known.body.get("retries")

    def created(self, task_id: str, body: Mapping[str, Any] | None = None) -> None:
        known = self.known[task_id]
        sealed = self._groups[known.group_id].sealed
        if not self.stored(task_id):
            raise Broken("no-task-is-lost", task_id, "it was created, and is not stored")
        if sealed and sealed < known.begun:
            raise Broken("a-sealed-group-is-closed", task_id, f"{known.group_id} was sealed at {sealed}")
        known.answered.add(body["retries"] if body else None)
        if len(known.answered) > 1:
            raise Broken("errors-of-the-contract", task_id, "it was created with two definitions")
        known.created = known.created or self._world.clock.now()

    def claimed(self, worker: str, answer: Mapping[str, Any], since: datetime | None = None) -> None:
        """The worker has got this claim. ``since`` is when its call began."""
        task_id = answer["status"]["taskId"]
        run_id = answer["runId"]
        known = self.known[task_id]
        now = self._world.clock.now()
        until = parse_time(answer["takenUntil"])
        holder = known.holders.get(run_id)
        if holder and holder.worker != worker:
            raise Broken("one-holder", task_id, f"run {run_id} of {holder.worker} was claimed by {worker}")
        for earlier, held in known.holders.items():
            is_over = (
                held.until <= now + self._skew
                or known.reported[earlier]
                or {"cancel", "rerun"} <= known.tried
            )
            if earlier < run_id and not is_over:
                why = f"{worker} claimed run {run_id}, {held.worker} holds run {earlier} until {held.until}"
                raise Broken("one-holder", task_id, why)
        if since and holder is None:  # otherwise the claim was repeated
            # it may be a repetition even now, if the answer to the first call was lost
            task = self.stored(task_id)
            started = task.runs[run_id].started if task else None
            self._check_taken_until(task_id, run_id, until, min(since, started or since))
        known.holders[run_id] = KnownClaim(worker, until)

    def _check_taken_until(self, task_id: str, run_id: int, until: datetime, since: datetime) -> None:
        timeout = self._world.settings.claim_timeout
        now = self._world.clock.now()
        if not since + timeout - self._skew <= until <= now + timeout + self._skew:
            raise Broken("claims-end-at-takenUntil", task_id, f"run {run_id} is taken until {until} at {now}")

    def disconnecting(self, worker: str) -> str:
        """A workerId for a client of this worker that will disconnect. Its claims are released or expire."""
        worker_id = f"{worker}-disconnects-{len(self._disconnecting)}"
        self._disconnecting.add(worker_id)
        return worker_id

    def reclaimed(self, worker: str, answer: Mapping[str, Any], since: datetime | None = None) -> None:
        task_id = answer["status"]["taskId"]
        run_id = answer["runId"]
        held = self.known[task_id].holders[run_id]
        until = parse_time(answer["takenUntil"])
        if held.worker != worker:
            raise Broken("one-holder", task_id, f"run {run_id} of {held.worker} was reclaimed by {worker}")
        if until < held.until:
            raise Broken("claims-end-at-takenUntil", task_id, f"a reclaim shortens run {run_id} to {until}")
        if since and held.until < since - self._skew:
            raise Broken("claims-end-at-takenUntil", task_id, f"run {run_id} ended at {held.until}")
        if since:
            self._check_taken_until(task_id, run_id, until, since)
        held.until = until

    def reporting(self, task_id: str, run_id: int, reason: str) -> None:
        self.known[task_id].reported[run_id].append(reason)

    def accepted(self, task_id: str, run_id: int, reason: str) -> None:
        accepted = self.known[task_id].accepted[run_id]
        accepted.add(reason)
        if len(accepted) > 1:
            raise Broken("one-resolution", task_id, f"run {run_id} was resolved as {sorted(accepted)}")

    def artifact_created(self, task_id: str, run_id: int, name: str) -> None:
        self.known[task_id].artifacts.append((run_id, name))

    def changing(self, task_id: str, call: str = "") -> None:
        """Somebody calls cancel, rerun or schedule for the task. With "", any of the three."""
        self.known[task_id].tried |= {call} if call else {"cancel", "rerun", "schedule"}

    def sealing(self, task_group_id: str) -> None:
        self._groups[task_group_id].sealing = True

    def sealed(self, task_group_id: str) -> None:
        self._groups[task_group_id].sealed = self._world.clock.now()

    def canceling(self, task_group_id: str) -> None:
        for known in self._members(task_group_id).values():
            known.tried.add("cancel")

    def canceled(self, task_group_id: str) -> None:
        """cancelTaskGroup was answered.

        From now on every task of the group is resolved, unless it is rerun.
        """
        now = self._world.clock.now()
        for task_id, known in self._members(task_group_id).items():
            task = self.stored(task_id)
            known.tried.add("cancel")
            is_over = not task or task.is_resolved or task.definition.deadline <= now
            if task and not is_over and "rerun" not in known.tried:
                raise Broken("a-canceled-group-has-ended", task_id, f"it is {task.state}")

    def _members(self, task_group_id: str) -> Mapping[str, KnownTask]:
        return {task_id: known for task_id, known in self.known.items() if known.group_id == task_group_id}

    def refused(self, call: str, about: str, refusal: QueueError, since: datetime) -> None:
        """A call that began at ``since`` was answered with an error of the queue."""
        task_id, _, run_id = about.partition("/")
        known = self.known.get(task_id)
        if refusal.status == 403 and call == "claimTask" and task_id in self._world.forged:
            return
        if refusal.status not in (400, 404, 409):
            self.failed(call, about, refusal)
        if known is None:
            return
        if refusal.status == 404 and known.created and known.created < since:
            raise Broken("no-task-is-lost", task_id, f"{call}: {refusal.message}")
        if call == "createTask":
            self._check_refused(task_id, known, refusal)
        held = known.holders.get(int(run_id)) if run_id else None
        is_heard = call == "reclaimTask" or call.startswith("report") or call == "createArtifact"
        if is_heard and held and self._world.clock.now() + self._skew < held.until:
            deadline = parse_time(known.body["deadline"])
            reports = known.reported[int(run_id)]
            others = len(reports) > 1 if call.startswith("report") else len(reports) > 0
            if not others and "cancel" not in known.tried and self._world.clock.now() + self._skew < deadline:
                raise Broken("claims-end-at-takenUntil", task_id, f"{call} before {held.until}: {refusal}")

    def _check_refused(self, task_id: str, known: KnownTask, refusal: QueueError) -> None:
        """Check that the caller can know the reason why createTask was refused."""
        is_another = refusal.status == 409 and known.has_rival
        created = {each for each, other in self.known.items() if other.created}
        lacks = set(known.body["dependencies"]) - created - {task_id}
        is_over = parse_time(known.body["deadline"]) <= self._world.clock.now() + self._skew
        if not (is_another or lacks or is_over or self._groups[known.group_id].sealing):
            self.failed("createTask", task_id, refusal)

    def failed(self, call: str, about: str, error: Exception) -> None:
        """A caller got an error that the contract does not allow."""
        raise Broken("errors-of-the-contract", about, f"{call} raised {error!r}") from error

    # What is stored

    def stored(self, task_id: str) -> Task | None:
        for written in self._world.written:
            self._stored.pop(written, None)
        self._world.written.clear()
        if task_id not in self._stored:
            found = self._tasks.load(task_id)
            self._stored[task_id] = found.task if found else None
        return self._stored[task_id]

    def _limit(self, since: datetime, until: datetime, promised: timedelta = _PROMPT) -> timedelta:
        """Within which time something must be done that has been possible since then.

        While a process stood still or the broker was away, the time does not count.
        """
        begin, end = ((time - self._world.clock.at(0)).total_seconds() for time in (since, until))
        stalled = 0.0
        for stood_still, went_on in sorted(self._world.stalls):
            stalled += max(0.0, min(end, went_on) - max(begin, stood_still))
            begin = max(begin, went_on)
        return promised + self._skew + timedelta(seconds=stalled)

    def _is_late(self, since: datetime, until: datetime, promised: timedelta = _PROMPT) -> bool:
        return until - since > promised + self._skew and until - since > self._limit(since, until, promised)

    def tasks(self) -> dict[str, Task]:
        return {task_id: task for task_id in self.known if (task := self.stored(task_id))}

    def check(self) -> None:
        """Check what must always be true, within the promised times."""
        now = self._world.clock.now()
        tasks = self.tasks()
        visible, counts = self._messages(tasks)
        soon = now + self._world.settings.poll_visibility + _PROMPT
        open_tasks = Counter(
            task.work_queue.worker_type for task in tasks.values() if task.state in ("pending", "running")
        )
        for task_id, task in tasks.items():
            known = self.known[task_id]
            run = task.last_run
            if task.retries_left < 0:
                raise Broken("retriesLeft", task_id, f"it is {task.retries_left}")
            promised = _SWEPT if task_id in self._world.forgotten else _PROMPT
            if not task.is_resolved and self._is_late(task.definition.deadline, now, promised):
                raise Broken("ends-at-its-deadline", task_id, f"it is {task.state}")
            taken_until = run.taken_until if run and run.state == "running" else None
            if run and taken_until and self._is_late(taken_until, now, promised):
                raise Broken("claims-end-at-takenUntil", task_id, f"run {run.run_id}: {run.taken_until}")
            if run and taken_until and now < taken_until < task.definition.deadline - _NOT_HELD:
                self._check_held(task_id, run, visible)
            if run is None or run.state != "pending" or visible.get((task_id, run.run_id), soon) < soon:
                known.lacks_message = None
            else:
                pool = task.work_queue.worker_type
                self._check_lacking(task_id, run, counts[pool] >= open_tasks[pool], now)
        for task_id, known in self.known.items():
            if known.created and task_id not in tasks:
                raise Broken("no-task-is-lost", task_id, f"created at {known.created}")

    def _check_lacking(self, task_id: str, run: Run, is_hidden: bool, now: datetime) -> None:
        """The run is pending and has no message.

        ``is_hidden``: too many other messages hide this from the sweeper.
        """
        known = self.known[task_id]
        was_lost = task_id in self._world.forgotten
        was_lost |= any((task_id, run_id) in self._world.lost for run_id in range(run.run_id + 2))
        known.lacks_message = now if was_lost and is_hidden else known.lacks_message or now
        if self._is_late(known.lacks_message, now, _SWEPT if was_lost else _PROMPT):
            raise Broken("pending-implies-offered", task_id, f"run {run.run_id} has no message")

    def _check_held(self, task_id: str, run: Run, visible: Collection[tuple[str, int]]) -> None:
        """Check that a message for the next run is held, because a worker that polls it can end the claim."""
        following = {(task_id, run.run_id + 1), (task_id, run.run_id + 2)}
        if following.isdisjoint(visible) and following.isdisjoint(self._world.lost):
            raise Broken("claims-end-at-takenUntil", task_id, f"no message is held for run {run.run_id}")

    def _messages(self, tasks: Mapping[str, Task]) -> tuple[dict[tuple[str, int], datetime], Counter[str]]:
        """When the first message for each run becomes visible, and how many messages each pool has."""
        visible: dict[tuple[str, int], datetime] = {}
        counts: Counter[str] = Counter()
        is_open = [task.work_queue for task in tasks.values() if not task.is_resolved]
        pools = {(queue.provisioner_id, queue.worker_type) for queue in is_open}
        for queue in [queue for pool in sorted(pools) for queue in work_queues(*pool)]:
            with suppress(QueueNotFound):
                for message in self._world.account.queue(queue.name(PREFIX)).messages():
                    task_id, run_id, signature = read_message(message.text)
                    counts[queue.worker_type] += 1
                    task = tasks.get(task_id)
                    is_forged = task_id in self._world.forged and not signature_is_valid(
                        signature, task_id, run_id, self._world.settings.secrets
                    )
                    if is_forged or task is None or task.work_queue.worker_type != queue.worker_type:
                        continue
                    since = message.next_visible or self._world.clock.now()
                    visible[task_id, run_id] = min(since, visible.get((task_id, run_id), since))
        return visible, counts

    # Checks at the end

    def check_end(self) -> None:
        """Check what must be true once every task is resolved and all work is done."""
        tasks = self.tasks()
        for task_id, known in self.known.items():
            if known.created and task_id not in tasks:
                raise Broken("no-task-is-lost", task_id, f"created at {known.created}")
        events = self._events()
        for task_id, task in tasks.items():
            if not task.is_resolved:
                raise Broken("ends-at-its-deadline", task_id, f"it is {task.state}")
            self._check_runs(task)
            self._check_events(task, events[task_id])
            self._check_artifacts(task, events[task_id])
            self._check_dependencies(task, tasks, events[task_id])
        self._check_groups(tasks, events)

    def _check_runs(self, task: Task) -> None:
        known = self.known[task.task_id]
        retries = task.definition.retries
        for run in task.runs:
            retries = task.definition.retries if run.reason_created == "rerun" else retries
            retries -= run.reason_created in ("retry", "task-retry")
            if retries < 0:
                raise Broken("retriesLeft", task.task_id, f"run {run.run_id} is one retry too many")
        if retries != task.retries_left:
            raise Broken("retriesLeft", task.task_id, f"it is {task.retries_left}, not {retries}")
        for run_id, reasons in known.accepted.items():
            reason = task.runs[run_id].reason_resolved if run_id < len(task.runs) else "no run"
            if {reason} != reasons:
                raise Broken("one-resolution", task.task_id, f"run {run_id}: {reasons}, and stored: {reason}")
        for run_id, held in known.holders.items():
            found = next(iter(task.runs[run_id : run_id + 1]), None)
            worker = found.worker if found else None
            if found is None or worker is None or worker.worker_id != held.worker:
                raise Broken("one-holder", task.task_id, f"run {run_id}: {held.worker}, and stored: {worker}")
            ended = found.resolved if found.reason_resolved == "claim-expired" else None
            if ended and ended + self._skew < held.until:
                raise Broken("claims-end-at-takenUntil", task.task_id, f"run {run_id} ended at {ended}")

    def _check_events(self, task: Task, delivered: Sequence[tuple[datetime, Event]]) -> None:
        """Check that each event of the task came in time and no other came, first arrivals in order."""
        expected = _expected_events(task)
        came: dict[tuple[str, Any], datetime] = {}
        for time, event in delivered:
            run_id = event.payload.get("runId")
            worker = task.runs[run_id].worker if run_id is not None and run_id < len(task.runs) else None
            worker_id = event.payload.get("workerId")
            is_other = worker_id not in (None, worker and worker.worker_id)
            if is_other and worker_id in self._disconnecting:
                continue
            if event.exchange != "artifact-created":
                came.setdefault(_name(event), time)
            if is_other:
                raise Broken("each-event-is-true", task.task_id, f"{event}, and its worker was {worker}")
        if wrong := [event for event in came if event not in expected]:
            raise Broken("each-event-is-true", task.task_id, f"{wrong} came, expected {expected}")
        if task.task_id in self._world.forgotten:
            return  # the row of a dead process was lost, so nobody knows which events it had to publish
        if missing := [event for event in expected if event not in came]:
            raise Broken("each-event-arrives", task.task_id, f"{missing} of {expected}")
        # the times of a run and of a change of priority can come from two different clocks
        ordered = [name for name in expected if not (self._skew and name[0] == "task-priority-changed")]
        if [name for name in came if name in ordered] != ordered:
            raise Broken("first-arrivals-in-order", task.task_id, f"{[*came]}, expected {[*expected]}")
        for name, happened in expected.items():
            if happened and self._is_late(happened, came[name]):
                raise Broken("each-event-arrives", task.task_id, f"{name} of {happened} came at {came[name]}")

    def _check_artifacts(self, task: Task, delivered: Sequence[tuple[datetime, Event]]) -> None:
        came = [_name(event) for _, event in delivered]
        artifacts = set(self.known[task.task_id].artifacts)
        for run in task.runs:
            stored = self._artifacts.list(task.task_id, run.run_id, "", 10)
            artifacts |= {(run.run_id, artifact.name) for artifact in stored}
        for run_id, name in sorted(artifacts) if task.task_id not in self._world.forgotten else ():
            created = ("artifact-created", (run_id, name))
            if created not in came:
                raise Broken("each-event-arrives", task.task_id, f"{created}")
            if came.index(created) < came.index(("task-running", run_id)):
                raise Broken("first-arrivals-in-order", task.task_id, f"{created} came before task-running")

    def _check_dependencies(
        self, task: Task, tasks: Mapping[str, Task], delivered: Sequence[tuple[datetime, Event]]
    ) -> None:
        wire = task.definition.wire
        known = self.known[task.task_id]
        required_ids = [task_id for task_id in wire["dependencies"] if task_id != task.task_id]
        required = [tasks.get(task_id) for task_id in required_ids]
        is_rerun = any("rerun" in self.known[each].tried for each in required_ids)
        is_forgotten = not self._world.forgotten.isdisjoint([task.task_id, *required_ids])
        if not required or is_rerun or is_forgotten or known.tried & {"schedule", "rerun"}:
            return
        states = {"completed"} if wire["requires"] == "all-completed" else RESOLVED
        satisfied = [each for each in required if each and each.state in states]
        is_satisfied = len(satisfied) == len(required)
        last = max((each.runs[-1].resolved for each in satisfied), default=None)  # type: ignore[type-var]
        first = task.runs[0]
        if first.reason_created == "exception":
            is_satisfied &= first.reason_resolved != "canceled"
            if is_satisfied and last and self._is_late(last, task.definition.deadline):
                raise Broken("dependents-are-released", task.task_id, "it waited up to its deadline")
            return
        pending = next(time for time, event in delivered if event.exchange == "task-pending")
        if not is_satisfied or (last and pending + self._skew < last):
            raise Broken("dependents-are-released", task.task_id, f"at {pending}, before {last}")
        if last and known.created and self._is_late(max(last, known.created), first.scheduled):
            raise Broken("dependents-are-released", task.task_id, f"at {first.scheduled}, after {last}")

    def _check_groups(self, tasks: Mapping[str, Task], events: _Arrivals) -> None:
        groups: dict[str, list[Task]] = defaultdict(list)
        for task in tasks.values():
            groups[task.definition.task_group_id].append(task)
        for group_id, members in groups.items():
            if any(task.task_id in self._world.forgotten for task in members):
                continue  # the sweeper resolves it when it next looks at the task
            came = [time for time, _ in events[f"group {group_id}"]]
            last = max(run.resolved for task in members for run in task.runs[-1:] if run.resolved)
            after = [time for time in came if time >= last - self._skew]
            # if a rerun was not written, the sweeper removes what it has left
            is_rerun = any("rerun" in self.known[task.task_id].tried for task in members)
            if not after or self._is_late(last, after[0], _SWEPT if is_rerun else _PROMPT):
                raise Broken("groups-are-resolved", group_id, f"the last task ended at {last}: {came}")
            for task in members:
                for time in came:
                    self._check_was_resolved(task, time)

    def _check_was_resolved(self, task: Task, time: datetime) -> None:
        """Check that, when task-group-resolved came, the task was resolved or had only just become active."""
        known = self.known[task.task_id]
        active = known.created
        for run in task.runs:
            active = run.scheduled if run.reason_created == "rerun" else active
            if not task.ended_with(run.run_id):
                continue
            is_young = active is None or not self._is_late(active, time)
            if not is_young and run.resolved and time < run.resolved - self._skew:
                raise Broken("groups-are-resolved", task.task_id, f"task-group-resolved came at {time}")
            active = None

    def _events(self) -> dict[str, list[tuple[datetime, Event]]]:
        """The events that came, by taskId, or by "group" and the taskGroupId."""
        found: dict[str, list[tuple[datetime, Event]]] = defaultdict(list)
        for time, event in self._world.broker.delivered:
            at = self._world.clock.at(time)
            if event.exchange == "task-group-resolved":
                found[f"group {event.payload['taskGroupId']}"].append((at, event))
            elif "status" in event.payload:
                found[event.payload["status"]["taskId"]].append((at, event))
        return found

    def check_nothing_left(self) -> None:
        alive = {f"p{process.number:04}" for process in self._world.alive}
        for name in ("tasks", "groups", "dependencies", "artifacts", "processes"):
            rows = self._world.account.table(PREFIX + name).page([], "", 1000).rows
            rows = [row for row in rows if row.partition not in alive]
            if rows:
                raise Broken("nothing-left-over", rows[0].partition, f"{len(rows)} rows in {name}")
        for name, _ in self._world.account.queues(PREFIX):
            if count := self._world.account.queue(name).count():
                raise Broken("nothing-left-over", name, f"{count} messages")
        self.check_ledgers()

    def check_ledgers(self) -> None:
        for process in self._world.alive:
            if count := process.services.ledger.in_memory():
                raise Broken("nothing-left-over", f"p{process.number}", f"{count} tasks in the ledger")


def _expected_events(task: Task) -> dict[tuple[str, Any], datetime | None]:
    """The events that a resolved task must have had, in order, with their times."""
    expected: dict[tuple[str, Any], datetime | None] = {("task-defined", None): None}
    changes = list(task.priority_changes)

    def change(before: datetime | None) -> None:
        while changes and (before is None or changes[0].changed < before):
            changed = changes.pop(0)
            expected["task-priority-changed", (changed.old, changed.new)] = changed.changed

    for run, later in zip(task.runs, [*task.runs[1:], None], strict=True):
        change(run.scheduled)
        if run.reason_created != "exception":
            expected["task-pending", run.run_id] = run.scheduled
        if run.worker:
            change(run.started)
            expected["task-running", run.run_id] = run.started
        change(run.resolved)
        if later is None or later.reason_created == "rerun":
            expected[f"task-{run.state}", run.run_id] = run.resolved
    change(None)
    return expected


def _name(event: Event) -> tuple[str, Any]:
    """The event's exchange, and what tells it from other events of the task in this exchange."""
    payload = event.payload
    match event.exchange:
        case "task-defined":
            return event.exchange, None
        case "task-priority-changed":
            return event.exchange, (payload["oldPriority"], payload["newPriority"])
        case "artifact-created":
            return event.exchange, (payload["runId"], payload["artifact"]["name"])
    return event.exchange, payload.get("runId")
