"""The clients of the servers: schedulers that create tasks, and workers of the three protocols that run them.

They behave like clients over HTTP. They send each call to any process, repeat it after a 5xx or a lost
connection, and never after a 4xx. Every answer goes into the record.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from legacy_queue.domain.errors import QueueError, ServiceUnavailable
from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import LeaseLost
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.claims import ClaimProof
from tests.simulation.promises import Record
from tests.simulation.world import PREFIX, ConnectionLost, Process, World

Result = TypeVar("Result")

POOLS = ("one", "two")
PROTOCOLS = ("draft", "deployed", "claimwork")
DEADLINE = timedelta(minutes=40)
_SHORT_DEADLINE = timedelta(minutes=2)
EXPIRES = timedelta(hours=1)
_TRIES = 6
# what a worker does with a run, in percent
_DEEDS = {
    "completed": 52,
    "failed": 10,
    "worker-shutdown": 8,
    "intermittent-task": 6,
    "long": 8,
    "late": 8,
    "vanish": 8,
}
# what a scheduler calls while another call about the task is under way, and with which probability
_MEDDLING = (
    ("create again", 0.15),
    ("create another", 0.03),
    ("cancel", 0.2),
    ("rerun", 0.1),
    ("rerun", 0.1),
    ("priority", 0.12),
    ("priority", 0.12),
)


class Unanswered(Exception):
    """All tries failed. It is unknown whether the call was carried out."""


class Client:
    """Sends each call to a random process among those that are alive."""

    def __init__(self, world: World, record: Record, name: str) -> None:
        self.world = world
        self.record = record
        self.name = name
        self.random = world.random(f"client {name}")

    @property
    def now(self) -> datetime:
        return self.world.clock.now()

    def pause(self, seconds: float) -> None:
        self.world.time.sleep(self.random.uniform(0.5, 1.5) * seconds)

    def process(self) -> Process:
        while not self.world.alive:
            self.world.time.sleep(0.5)
        return self.random.choice(self.world.alive)

    def ask(self, call: str, about: str, act: Callable[[Services], Result], tries: int = _TRIES) -> Result:
        """Send a call until it is answered. Raises QueueError for a 4xx, and Unanswered."""
        since = self.now
        for number in range(tries):
            try:
                answer = self.process().request(act)
                self.world.note(f"{self.name} {call} {about}: 200")
                return answer
            except (ConnectionLost, ServiceUnavailable) as failure:
                self.world.note(f"{self.name} {call} {about}: {type(failure).__name__}")
                self.pause(0.2 * 2**number)
            except QueueError as refusal:
                self.world.note(f"{self.name} {call} {about}: {refusal.status} {refusal.message}")
                self.record.refused(call, about, refusal, since)
                raise
            except Exception as error:  # noqa: BLE001 - a bug of the services
                self.record.failed(call, about, error)
        raise Unanswered

    def later(self, act: Callable[..., object], *words: Any, within: float = 30) -> None:
        """Call ``act`` at about the same time, or up to ``within`` seconds later. Any answer is fine."""

        def call() -> None:
            with suppress(QueueError, Unanswered):
                act(*words)

        self.world.spawn(call, self.random.choice((0, 0.01, 0.03, 0.1, 1, within)))


class Scheduler(Client):
    """Creates tasks: single ones, groups, and dependencies.

    Meanwhile it makes other calls about some of them.
    """

    def body(self, **changes: Any) -> dict[str, Any]:
        deadline = _SHORT_DEADLINE if self.random.random() < 0.05 else DEADLINE
        return {
            "provisionerId": "p",
            "workerType": self.random.choice(POOLS),
            "priority": self.random.choice(("lowest", "high")),
            "schedulerId": "s",
            "retries": self.random.choice((0, 1, 5, 5, 5)),
            "created": format_time(self.now),
            "deadline": format_time(self.now + deadline),
            "expires": format_time(self.now + EXPIRES),
            "payload": {},
            "metadata": {"name": "n", "description": "d", "owner": "o@e.com", "source": "https://e.com/s"},
            **changes,
        }

    def create(self, task_id: str, body: Mapping[str, Any]) -> None:
        """Create the task. Some schedulers give up at the first failure."""
        self.record.creating(task_id, body)
        tries = 1 if self.random.random() < 0.2 else _TRIES
        with suppress(Unanswered):
            self.ask("createTask", task_id, lambda services: services.tasks.create(task_id, body), tries)
            self.record.created(task_id, body)

    def tasks(self, count: int, every: float) -> None:
        made = 0
        while made < count:
            self.pause(every)
            if self.random.random() < 0.15:
                made += self._group(self.random.randint(2, 6))
                continue
            made += 1
            task_id = self.world.task_id()
            is_defined = self.random.random() < 0.15
            body = self.body(dependencies=[task_id] if is_defined else [])
            self.record.creating(task_id, body)
            self.later(self.create, task_id, body)
            if is_defined:
                self.later(self._change, "schedule", task_id)
            self.meddle(task_id, body)

    def meddle(self, task_id: str, body: Mapping[str, Any] | None = None) -> None:
        """Make other calls about the task at about the same time.

        Give its ``body`` while createTask is under way.
        """
        body = body or self.record.known[task_id].body
        for kind, chance in _MEDDLING:
            if self.random.random() > chance:
                continue
            if kind == "create again":
                self.later(self.create, task_id, body)
            elif kind == "create another":
                self.later(self.create, task_id, {**body, "retries": 3})
            elif kind == "priority":
                others = [name for name in ("lowest", "high", "medium") if name != body["priority"]]
                self.later(self._change_priority, task_id, body["priority"], self.random.choice(others))
            else:
                self.later(self._change, kind, task_id)

    def _change(self, kind: str, task_id: str) -> None:
        self.record.changing(task_id, kind)
        self.ask(f"{kind}Task", task_id, lambda services: getattr(services.tasks, kind)(task_id), 1)

    def _change_priority(self, task_id: str, old: str, new: str) -> None:
        self.ask("changeTaskPriority", task_id, lambda at: at.tasks.change_priority(task_id, old, new))

    def _change_group_priority(self, task_group_id: str) -> None:
        about, new = task_group_id, self.random.choice(("lowest", "high"))
        change = lambda at: at.group_changes.change_priority(about, new, ("raise", "lower"))  # noqa: E731
        self.ask("changeTaskGroupPriority", about, change)

    def _group(self, size: int) -> int:
        """Create a group of tasks that depend on each other, as a chain or a fan. Returns its size."""
        task_ids = [self.world.task_id() for _ in range(size)]
        requires = self.random.choice(("all-completed", "all-resolved"))
        bodies = []
        for number in range(size):
            dependencies = self.random.choice((task_ids[max(0, number - 1) : number], task_ids[:number][:2]))
            group = {"taskGroupId": task_ids[0], "dependencies": dependencies, "requires": requires}
            bodies.append(self.body(**group, deadline=format_time(self.now + DEADLINE)))

        def create() -> None:
            for task_id, body in zip(task_ids, bodies, strict=True):
                self.world.time.sleep(self.random.choice((0, 0, 0.1, 2, 5)))
                with suppress(QueueError):  # a task that it depends on may not have been created
                    self.create(task_id, body)
                if self.random.random() < 0.3:
                    self.meddle(task_id, body)
            if self.random.random() < 0.4:
                late_id = self.world.task_id()
                self.later(self.create, late_id, {**bodies[0], "dependencies": []})
                self.later(self._end_group, task_ids[0])
            elif self.random.random() < 0.2:
                self.later(self._change_group_priority, task_ids[0])

        self.later(create)
        return size

    def follow(self, task_id: str) -> None:
        """Create a task that depends on this one while this one is about to be resolved."""
        requires = self.random.choice(("all-completed", "all-resolved"))
        deadline = format_time(self.now + DEADLINE / 2)
        body = self.body(dependencies=[task_id], requires=requires, deadline=deadline)
        self.create(self.world.task_id(), body)

    def _end_group(self, task_group_id: str) -> None:
        """Seal the group, and sometimes cancel it too. Members that are created after that are refused."""
        self.record.sealing(task_group_id)
        self.ask("sealTaskGroup", task_group_id, lambda services: services.groups.seal(task_group_id))
        self.record.sealed(task_group_id)
        if self.random.random() < 0.6:
            late_id = self.world.task_id()
            body = self.body(taskGroupId=task_group_id)
            self.later(self.create, late_id, body)
            self.record.canceling(task_group_id)
            self.ask("cancelTaskGroup", task_group_id, lambda at: at.group_changes.cancel(task_group_id))
            self.record.canceled(task_group_id)


class SimulatedWorker(Client):
    """A worker of a pool. It runs one task at a time, until ``is_stopped``."""

    def __init__(self, world: World, record: Record, name: str, protocol: str, worker_type: str) -> None:
        super().__init__(world, record, name)
        self._protocol = protocol
        self._worker_type = worker_type
        self._worker = Worker("g", name)
        # how long it waits if there is no work, in seconds
        self.interval = 2.0
        self.is_stopped = False
        # creates dependents of the tasks that the worker runs
        self.scheduler: Scheduler | None = None

    def deed(self) -> str:
        return self.random.choices([*_DEEDS], [*_DEEDS.values()])[0]

    def run(self) -> None:
        while not self.is_stopped:
            with suppress(Unanswered):
                since = self.now
                claim = self._claim_work() if self._protocol == "claimwork" else self._poll()
                if claim:
                    self._run(claim, since)
                else:
                    self.pause(self.interval)

    def _claim_work(self) -> Mapping[str, Any] | None:
        """The claim in the answer. None if there is none, or if the client disconnects meanwhile."""
        wait = None if self.interval < 5 else timedelta(0)
        disconnects = self.world.happens("hung_up")
        worker = Worker("g", self.record.disconnecting(self.name)) if disconnects else self._worker
        gone_at = self.now + timedelta(seconds=self.random.uniform(0, 10))
        answer = self.ask(
            "claimWork",
            "",
            lambda services: services.claim_work.claim(
                "p", self._worker_type, worker, 1, lambda: disconnects and self.now > gone_at, max_wait=wait
            ),
        )
        return None if disconnects else next(iter(answer["tasks"]), None)

    def _poll(self) -> Mapping[str, Any] | None:
        for queue in work_queues("p", self._worker_type):
            polled = self.world.account.queue(queue.name(PREFIX))
            with suppress(LeaseLost):
                for message in polled.receive(1, self.world.settings.poll_visibility):
                    self.world.time.sleep(0.005)
                    proof = self._proof(message)
                    claim = self._claim(message, proof)
                    if claim is None or proof.lease is None:
                        with suppress(LeaseLost):
                            polled.delete(message.lease)
                    return claim
        return None

    def _proof(self, message: QueuedMessage) -> ClaimProof:
        """The proof that it sends. If this has no receipt, it deletes the message itself."""
        if self._protocol == "deployed":
            return ClaimProof()
        lacks_receipt = self.scheduler and self.random.random() < 0.1
        receipt = None if lacks_receipt else message.lease.receipt
        return ClaimProof(message.lease.message_id, receipt, read_message(message.text)[2])

    def _claim(self, message: QueuedMessage, proof: ClaimProof) -> Mapping[str, Any] | None:
        """Claim the run of the message. Raises Unanswered, and then the message stays."""
        task_id, run_id, _ = read_message(message.text)
        if self.scheduler and self.random.random() < 0.2:
            self.scheduler.meddle(task_id)
        if self.random.random() < 0.1:
            self.later(self._steal, task_id, run_id, within=self.random.choice((70, 115, 121)))
        with suppress(QueueError):
            return self._claim_task(task_id, run_id, self._worker, proof)
        return None

    def _claim_task(self, task_id: str, run_id: int, worker: Worker, proof: ClaimProof) -> Mapping[str, Any]:
        def claim(services: Services) -> Mapping[str, Any]:
            return services.claims.claim(services.tasks.recall(task_id), run_id, worker, proof)

        return self.ask("claimTask", f"{task_id}/{run_id}", claim)

    def _steal(self, task_id: str, run_id: int) -> None:
        """Without a message, claim a run that another worker may hold."""
        thief = SimulatedWorker(self.world, self.record, f"thief of {self.name}", "deployed", "")
        run_id += self.random.choice((0, 0, 1))
        since = self.now
        thief.scheduler = self.scheduler
        thief._run(thief._claim_task(task_id, run_id, thief._worker, ClaimProof()), since)

    def _run(self, claim: Mapping[str, Any], since: datetime) -> None:
        """Run the task. ``since`` is when the claim began."""
        self.record.claimed(self.name, claim, since)
        task_id = claim["status"]["taskId"]
        run_id = claim["runId"]
        deed = self.deed()
        self.pause(self.random.choice((0.05, 1, 4)))
        if deed == "artifact":
            self.world.time.sleep(10)  # by then, no process looks at the task any more
            self._create_artifact(task_id, run_id, 1)
            deed = "completed"
        elif self.random.random() < 0.25:
            self._create_artifact(task_id, run_id, self.random.choice((1, _TRIES)))
        if deed == "vanish":
            return
        if deed == "late":
            self._wait_for_end(claim, self.random.choice((1.0, 1.02, 1.2)))
            if self.random.random() < 0.5:
                self.reclaim(task_id, run_id)
            deed = "failed"
        if deed == "long":
            for _ in range(self.random.randint(1, 3)):
                self._wait_for_end(claim, self.random.choice((0.01, 0.7, 0.95)))
                answer = self.reclaim(task_id, run_id)
                if answer is None:
                    return
                claim = answer
            deed = "completed"
        if self.scheduler and self.random.random() < 0.3:
            self.later(self.scheduler.follow, task_id, within=5)
        self.pause(0.03)
        self.report(task_id, run_id, deed)
        if self.random.random() < 0.1:
            self.later(self.report, task_id, run_id, self.random.choice((deed, "completed", "failed")))

    def _wait_for_end(self, claim: Mapping[str, Any], share: float) -> None:
        left = parse_time(claim["takenUntil"]) - self.now
        self.world.time.sleep(max(0.1, left.total_seconds() * share))

    def reclaim(self, task_id: str, run_id: int) -> Mapping[str, Any] | None:
        since = self.now
        with suppress(QueueError):
            run = f"{task_id}/{run_id}"
            answer = self.ask("reclaimTask", run, lambda at: at.claims.reclaim(task_id, run_id))
            self.record.reclaimed(self.name, answer, since)
            return answer
        return None

    def _create_artifact(self, task_id: str, run_id: int, tries: int) -> None:
        name = f"public/{self.random.choice('ab')}"
        body = {
            "storageType": "reference",
            "expires": format_time(self.world.clock.at(0) + EXPIRES),
            "contentType": "text/plain",
            "url": "https://elsewhere.example.com/live.log",
        }
        with suppress(QueueError, Unanswered):
            run = f"{task_id}/{run_id}"
            act = lambda at: at.artifacts.create(task_id, run_id, name, body)  # noqa: E731
            self.ask("createArtifact", run, act, tries)
            self.record.artifact_created(task_id, run_id, name)

    def report(self, task_id: str, run_id: int, deed: str) -> None:
        state = deed if deed in ("completed", "failed") else "exception"
        self.record.reporting(task_id, run_id, deed)
        with suppress(QueueError):
            run = f"{task_id}/{run_id}"
            self.ask(f"report {deed}", run, lambda at: at.tasks.report(task_id, run_id, state, deed))
            self.record.accepted(task_id, run_id, deed)
