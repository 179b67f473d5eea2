"""What was answered to whom, and whether it keeps the promises of the design; written without the services.

It knows the answers of the calls, what the broker has delivered, and what is stored. A promise that is
broken raises Broken at once, or in ``check`` while time passes, or in ``check_end``.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.domain.events import Event
from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import parse_time
from legacy_queue.ports.queue import QueueNotFound
from legacy_queue.stores.task_store import TaskStore
from tests.simulation.world import PREFIX, World

# in which a killed process's work goes on elsewhere, faults of a few calls included
_PROMPT = timedelta(seconds=90)
# in which the sweeper repairs a lost message: ten minutes pending, then up to ten until it comes
_SWEPT = timedelta(minutes=22)
_ROUNDING = timedelta(seconds=2)  # Azure counts whole seconds


class Broken(AssertionError):
    """A promise is broken; ``about`` is the taskId or taskGroupId."""

    def __init__(self, promise: str, about: str, why: str) -> None:
        super().__init__(f"{promise}: {about}: {why}")
        self.promise = promise
        self.about = about


@dataclass
class Held:
    """A worker's right to a run, as the worker knows it."""

    worker: str
    until: datetime


@dataclass
class Known:
    """What was answered about a task."""

    body: Mapping[str, Any]
    # when createTask was answered; None while it was not
    created: datetime | None = None
    holders: dict[int, Held] = field(default_factory=dict)
    # the reports that were sent, and those that were accepted, by run
    reported: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    accepted: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    # whether somebody tried to cancel it or to run it again, or changed it otherwise
    is_changed: bool = False
    lacks_message: datetime | None = None
    was_resolved: bool = False


class Record:
    """The promises that are kept in this world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks = TaskStore(world.account.table(f"{PREFIX}tasks"))
        self.known: dict[str, Known] = {}
        faults = world.faults
        self._tolerance = _ROUNDING + timedelta(seconds=2 * faults.skew)
        stalls = timedelta(
            seconds=2 * faults.skew + 60 * bool(faults.frozen or faults.late or faults.away_every)
        )
        self._prompt = _PROMPT + stalls
        self._offered = (_SWEPT if faults.lost else _PROMPT) + stalls
        self.checks = 0

    # What is answered

    def creating(self, task_id: str, body: Mapping[str, Any]) -> None:
        self.known.setdefault(task_id, Known(body))

    def created(self, task_id: str) -> None:
        self.known[task_id].created = self._world.clock.now()

    def claimed(self, worker: str, answer: Mapping[str, Any]) -> None:
        task_id = answer["status"]["taskId"]
        run_id = answer["runId"]
        known = self.known[task_id]
        now = self._world.clock.now()
        holder = known.holders.get(run_id)
        if holder and holder.worker != worker:
            raise Broken("one-holder", task_id, f"run {run_id} of {holder.worker} was claimed by {worker}")
        for earlier, held in known.holders.items():
            is_over = held.until <= now + self._tolerance or known.reported[earlier] or known.is_changed
            if earlier < run_id and not is_over:
                raise Broken(
                    "one-holder",
                    task_id,
                    f"run {run_id} was claimed by {worker} while {held.worker} holds run {earlier} "
                    f"until {held.until}",
                )
        known.holders[run_id] = Held(worker, parse_time(answer["takenUntil"]))

    def reclaimed(self, worker: str, answer: Mapping[str, Any]) -> None:
        task_id = answer["status"]["taskId"]
        run_id = answer["runId"]
        held = self.known[task_id].holders[run_id]
        until = parse_time(answer["takenUntil"])
        if held.worker != worker:
            raise Broken("one-holder", task_id, f"run {run_id} of {held.worker} was reclaimed by {worker}")
        if until + self._tolerance < held.until:
            raise Broken("claims-end-at-takenUntil", task_id, f"a reclaim shortens run {run_id} to {until}")
        held.until = until

    def reporting(self, task_id: str, run_id: int, reason: str) -> None:
        self.known[task_id].reported[run_id].append(reason)

    def accepted(self, task_id: str, run_id: int, reason: str) -> None:
        accepted = self.known[task_id].accepted[run_id]
        accepted.add(reason)
        if len(accepted) > 1:
            raise Broken("one-resolution", task_id, f"run {run_id} was resolved as {sorted(accepted)}")

    def changing(self, task_id: str) -> None:
        """The task is being canceled, rerun or scheduled."""
        self.known[task_id].is_changed = True

    def failed(self, call: str, about: str, error: Exception) -> None:
        """A caller got an error that is no answer of the contract."""
        raise Broken("errors-of-the-contract", about, f"{call} raised {error!r}") from error

    # What is stored

    def stored(self, task_id: str) -> Task | None:
        found = self._tasks.load(task_id)
        return found.task if found else None

    def _unresolved(self, task_id: str) -> Task | None:
        """The stored task, unless it has ended for good."""
        known = self.known[task_id]
        if known.was_resolved and not known.is_changed:
            return None
        task = self.stored(task_id)
        known.was_resolved = task is not None and task.is_resolved
        return task

    def tasks(self) -> dict[str, Task]:
        """The stored tasks that were tried to be created."""
        return {task_id: task for task_id in self.known if (task := self.stored(task_id))}

    def check(self) -> None:
        """Check what must be true at each moment, within the promised times."""
        self.checks += 1
        now = self._world.clock.now()
        tasks = {task_id: task for task_id in self.known if (task := self._unresolved(task_id))}
        offered = self._offers(tasks.values()) if any(t.state == "pending" for t in tasks.values()) else {}
        for task_id, task in tasks.items():
            known = self.known[task_id]
            run = task.last_run
            if task.retries_left < 0:
                raise Broken("retriesLeft", task_id, f"it is {task.retries_left}")
            overdue = now - self._prompt
            if task.definition.deadline < overdue and not task.is_resolved:
                raise Broken("ends-at-its-deadline", task_id, f"it is {task.state}")
            if run and run.state == "running" and run.taken_until and run.taken_until < overdue:
                raise Broken("claims-end-at-takenUntil", task_id, f"run {run.run_id}: {run.taken_until}")
            is_offered = run is None or run.state != "pending" or run.run_id in offered.get(task_id, ())
            known.lacks_message = None if is_offered else known.lacks_message or now
            if known.lacks_message and now - known.lacks_message > self._offered:
                raise Broken("pending-implies-offered", task_id, f"run {task.runs[-1].run_id} has no message")
        for task_id, known in self.known.items():
            if known.created and not known.was_resolved and task_id not in tasks:
                raise Broken("no-task-is-lost", task_id, f"created at {known.created}")

    def _offers(self, tasks: Any) -> dict[str, set[int]]:
        """The runs that a message is for, by taskId."""
        offers: dict[str, set[int]] = defaultdict(set)
        pools = {(task.work_queue.provisioner_id, task.work_queue.worker_type) for task in tasks}
        for queue in [queue for pool in sorted(pools) for queue in work_queues(*pool)]:
            with suppress(QueueNotFound):
                for message in self._world.account.queue(queue.name(PREFIX)).messages():
                    task_id, run_id, _ = read_message(message.text)
                    offers[task_id].add(run_id)
        return offers

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
            _check_events(task, events[task_id])
            self._check_dependencies(task, tasks)
        self._check_groups(tasks, events)

    def _check_runs(self, task: Task) -> None:
        known = self.known[task.task_id]
        retries = task.definition.retries
        for run in task.runs:
            retries = task.definition.retries if run.reason_created == "rerun" else retries
            retries -= run.reason_created in ("retry", "task-retry")
        if retries != task.retries_left:
            raise Broken("retriesLeft", task.task_id, f"it is {task.retries_left}, not {retries}")
        for run_id, reasons in known.accepted.items():
            reason = task.runs[run_id].reason_resolved if run_id < len(task.runs) else "no run"
            if {reason} != reasons:
                raise Broken("one-resolution", task.task_id, f"run {run_id}: {reasons}, and stored: {reason}")
        for run_id, held in known.holders.items():
            worker = task.runs[run_id].worker if run_id < len(task.runs) else None
            if worker is None or worker.worker_id != held.worker:
                raise Broken("one-holder", task.task_id, f"run {run_id}: {held.worker}, and stored: {worker}")

    def _check_dependencies(self, task: Task, tasks: Mapping[str, Task]) -> None:
        wire = task.definition.wire
        required = [tasks.get(task_id) for task_id in wire["dependencies"] if task_id != task.task_id]
        if not required or self.known[task.task_id].is_changed:
            return
        satisfied = [each for each in required if each and each.satisfies(wire["requires"])]
        last = max((each.runs[-1].resolved or datetime.max for each in satisfied), default=None)
        deadline = task.definition.deadline
        if task.runs[0].reason_created == "exception":
            if len(satisfied) == len(required) and last and last + self._prompt < deadline:
                raise Broken("dependents-are-released", task.task_id, "it waited up to its deadline")
        elif len(satisfied) < len(required) and not any(
            self.known[each].is_changed for each in wire["dependencies"]
        ):
            raise Broken("dependents-are-released", task.task_id, "it did not wait for its dependencies")

    def _check_groups(
        self, tasks: Mapping[str, Task], events: Mapping[str, Sequence[tuple[datetime, Event]]]
    ) -> None:
        groups: dict[str, list[Task]] = defaultdict(list)
        for task in tasks.values():
            groups[task.definition.task_group_id].append(task)
        for group_id, members in groups.items():
            resolved = [time for time, event in events[f"group {group_id}"]]
            last = max(run.resolved for task in members for run in task.runs[-1:] if run.resolved)
            if not resolved or resolved[-1] + self._tolerance < last:
                raise Broken("groups-are-resolved", group_id, f"the last task ended at {last}: {resolved}")

    def _events(self) -> dict[str, list[tuple[datetime, Event]]]:
        """The first arrivals, by taskId, or "group" and taskGroupId."""
        found: dict[str, list[tuple[datetime, Event]]] = defaultdict(list)
        for time, event in self._world.broker.delivered:
            at = self._world.clock.at(time)
            if event.exchange == "task-group-resolved":
                found[f"group {event.payload['taskGroupId']}"].append((at, event))
            elif event.exchange.startswith("task-") and "status" in event.payload:
                found[event.payload["status"]["taskId"]].append((at, event))
        return found

    def check_nothing_left(self) -> None:
        """Check that what has expired left no row, message or timer."""
        for name in ("tasks", "groups", "dependencies", "artifacts"):
            rows = self._world.account.table(PREFIX + name).page([], "", 1000).rows
            if rows:
                raise Broken("nothing-left-over", rows[0].partition, f"{len(rows)} rows in {name}")
        for name, _ in self._world.account.queues(PREFIX):
            if count := self._world.account.queue(name).count():
                raise Broken("nothing-left-over", name, f"{count} messages")
        for process in self._world.alive:
            if count := process.services.timers.in_memory():
                raise Broken("nothing-left-over", f"p{process.number}", f"{count} timers in memory")


def _check_events(task: Task, delivered: Sequence[tuple[datetime, Event]]) -> None:
    """Each event of the task's life has come, first arrivals in the order of that life, and no other."""
    life: list[tuple[str, int | None]] = [("task-defined", None)]
    for run, later in zip(task.runs, [*task.runs[1:], None], strict=True):
        if run.reason_created != "exception":
            life.append(("task-pending", run.run_id))
        if run.worker:
            life.append(("task-running", run.run_id))
        if later is None or later.reason_created == "rerun":
            life.append((f"task-{run.state}", run.run_id))
    came = list(
        dict.fromkeys(
            (event.exchange, None if event.exchange == "task-defined" else event.payload.get("runId"))
            for _, event in delivered
        )
    )
    if missing := [event for event in life if event not in came]:
        raise Broken("each-event-arrives", task.task_id, f"{missing} of {life}")
    came = [event for event in came if event[0] != "task-priority-changed"]
    if wrong := [event for event in came if event not in life]:
        raise Broken("each-event-is-true", task.task_id, f"{wrong}, and its life was {life}")
    if came != life:
        raise Broken("first-arrivals-in-order", task.task_id, f"{came}, and its life was {life}")
