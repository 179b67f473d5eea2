"""Who uses the server: schedulers that create tasks, and workers of the three protocols that run them.

Each sends its calls as a client over HTTP does: to any process, again after a 5xx or a lost connection, and
never after a 4xx. What is answered goes into the record.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from legacy_queue.domain.errors import QueueError, ServiceUnavailable
from legacy_queue.domain.messages import MessageLease, read_message
from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import LeaseLost
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from tests.simulation.record import Record
from tests.simulation.world import PREFIX, ConnectionLost, Process, World

Result = TypeVar("Result")

POOLS = ("one", "two", "three")  # worker types
PROTOCOLS = ("draft", "deployed", "claimwork")
DEADLINE = timedelta(minutes=40)
EXPIRES = timedelta(hours=1)
_TRIES = 6
# what a worker does with a run, and how often of a hundred times
_DEEDS = {
    "completed": 60,
    "failed": 10,
    "worker-shutdown": 8,
    "intermittent-task": 4,
    "long": 8,
    "vanish": 10,
}


class Unanswered(Exception):
    """The last try failed too: whether it was done is not known."""


class Client:
    """Sends calls to the processes that are alive, one of them at random."""

    def __init__(self, world: World, record: Record, name: str) -> None:
        self.world = world
        self.record = record
        self.name = name
        self.random = world.random(f"client {name}")

    def pause(self, seconds: float) -> None:
        self.world.time.sleep(self.random.uniform(0.5, 1.5) * seconds)

    def process(self) -> Process:
        while not self.world.alive:
            self.world.time.sleep(0.5)
        return self.random.choice(self.world.alive)

    def ask(self, call: str, about: str, act: Callable[[Services], Result], tries: int = _TRIES) -> Result:
        """The answer; raises QueueError for a 4xx, and Unanswered."""
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
                if refusal.status >= 500:
                    self.record.failed(call, about, refusal)
                raise
            except Exception as error:  # noqa: BLE001 - it is no answer
                self.record.failed(call, about, error)
        raise Unanswered


class Scheduler(Client):
    """Creates tasks: alone, in groups, with dependencies; cancels, reruns and schedules some."""

    def body(self, **changes: Any) -> dict[str, Any]:
        now = self.world.clock.now()
        return {
            "provisionerId": "p",
            "workerType": self.random.choice(POOLS),
            "priority": self.random.choice(("lowest", "high")),
            "schedulerId": "s",
            "retries": self.random.choice((0, 1, 5, 5, 5)),
            "created": format_time(now),
            "deadline": format_time(now + DEADLINE),
            "expires": format_time(now + EXPIRES),
            "payload": {},
            "metadata": {"name": "n", "description": "d", "owner": "o@e.com", "source": "https://e.com/s"},
            **changes,
        }

    def create(self, task_id: str, body: Mapping[str, Any]) -> None:
        """Create the task; some schedulers give up at the first failure."""
        self.record.creating(task_id, body)
        tries = 1 if self.random.random() < 0.2 else _TRIES
        with suppress(Unanswered):
            self.ask("createTask", task_id, lambda services: services.tasks.create(task_id, body), tries)
            self.record.created(task_id)

    def tasks(self, count: int, every: float) -> None:
        """Create that many tasks."""
        made = 0
        while made < count:
            self.pause(every)
            kind = self.random.random()
            if kind < 0.2:
                made += self._group(self.random.randint(2, 5))
                continue
            made += 1
            task_id = self.world.task_id()
            body = self.body(dependencies=[task_id] if kind < 0.3 else [])
            self.record.creating(task_id, body)
            self._later(self.create, task_id, body)
            if kind < 0.3:
                self._later(self._tell, "scheduleTask", task_id)
            if kind > 0.8:
                self._later(self.create, task_id, body)
            if kind > 0.85:
                self._later(self._tell, "cancelTask", task_id)
            if kind > 0.92:
                self._later(self._tell, "rerunTask", task_id)

    def _later(self, act: Callable[..., None], *words: Any) -> None:
        """Call it at about the same time as what came before, or later."""
        self.world.spawn(partial(act, *words), self.random.choice((0, 0.02, 0.1, 1, 30)))

    def _tell(self, call: str, task_id: str) -> None:
        """A call that changes the task, whatever is answered."""
        self.record.changing(task_id)

        def act(services: Services) -> object:
            name = call.removesuffix("Task")
            return getattr(services.tasks, name)(task_id)

        with suppress(QueueError, Unanswered):
            self.ask(call, task_id, act, 1)

    def _group(self, size: int) -> int:
        """A chain or a fan of tasks that depend on each other; returns its size."""
        task_ids = [self.world.task_id() for _ in range(size)]
        requires = self.random.choice(("all-completed", "all-resolved"))
        for number, task_id in enumerate(task_ids):
            dependencies = self.random.choice((task_ids[max(0, number - 1) : number], task_ids[:number][:2]))
            group = {"taskGroupId": task_ids[0], "dependencies": dependencies, "requires": requires}
            with suppress(QueueError):  # what it depends on may not have been created
                self.create(task_id, self.body(**group))
        return size


class SimulatedWorker(Client):
    """A worker of a pool. It runs one task at a time, until the world is told to stop."""

    def __init__(self, world: World, record: Record, name: str, protocol: str, worker_type: str) -> None:
        super().__init__(world, record, name)
        self._protocol = protocol
        self._worker_type = worker_type
        self._worker = Worker("g", name)
        self.is_stopped = False

    def deed(self) -> str:
        """What it does with the run that it has claimed."""
        return self.random.choices([*_DEEDS], [*_DEEDS.values()])[0]

    def run(self) -> None:
        while not self.is_stopped:
            with suppress(Unanswered):
                claim = self._claim_work() if self._protocol == "claimwork" else self._poll()
                if claim:
                    self.record.claimed(self.name, claim)
                    self._run(claim)
                elif self._protocol != "claimwork":
                    self.pause(2)

    def _claim_work(self) -> Mapping[str, Any] | None:
        answer = self.ask(
            "claimWork",
            "",
            lambda services: services.claim_work.claim(
                "p", self._worker_type, self._worker, 1, lambda: False
            ),
        )
        return next(iter(answer["tasks"]), None)

    def _poll(self) -> Mapping[str, Any] | None:
        for queue in work_queues("p", self._worker_type):
            polled = self.world.account.queue(queue.name(PREFIX))
            self.world.time.sleep(0.005)
            with suppress(LeaseLost):
                for message in polled.receive(1, self.world.settings.poll_visibility):
                    self.world.time.sleep(0.005)
                    claim = self._claim(message)
                    if self._protocol == "deployed":
                        with suppress(LeaseLost):
                            polled.delete(message.lease)
                    return claim
        return None

    def _claim(self, message: QueuedMessage) -> Mapping[str, Any] | None:
        """The claim of the run that the message is for; raises Unanswered: the message stays then."""
        task_id, run_id, signature = read_message(message.text)
        lease: MessageLease = message.lease
        proof = ClaimProof(None, None, None)
        if self._protocol == "draft":
            proof = ClaimProof(lease.message_id, lease.receipt, signature)
        with suppress(QueueError):
            return self.ask(
                "claimTask",
                f"{task_id}/{run_id}",
                lambda services: services.claims.claim(
                    services.tasks.recall(task_id), run_id, self._worker, proof
                ),
            )
        return None

    def _run(self, claim: Mapping[str, Any]) -> None:
        task_id = claim["status"]["taskId"]
        run_id = claim["runId"]
        deed = self.deed()
        self.pause(4)
        if deed == "vanish":
            return
        if deed == "long":
            for _ in range(self.random.randint(1, 3)):
                left = parse_time(claim["takenUntil"]) - self.world.clock.now()
                self.world.time.sleep(max(1.0, left.total_seconds() * 2 / 3))
                try:
                    claim = self.ask(
                        "reclaimTask",
                        f"{task_id}/{run_id}",
                        lambda services: services.claims.reclaim(task_id, run_id),
                    )
                except QueueError:
                    return
                self.record.reclaimed(self.name, claim)
            deed = "completed"
        state = deed if deed in ("completed", "failed") else "exception"
        self.record.reporting(task_id, run_id, deed)
        with suppress(QueueError):
            self.ask(
                f"report {deed}",
                f"{task_id}/{run_id}",
                lambda services: services.tasks.report(task_id, run_id, state, deed),
            )
            self.record.accepted(task_id, run_id, deed)
