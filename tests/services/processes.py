"""Server processes on one storage: only their rows and ledgers, without calls and threads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from legacy_queue.domain.task import Task
from legacy_queue.services.process.ledger import Ledger, Look, Owed
from legacy_queue.services.process.offers import Offers
from legacy_queue.services.process.processes import Processes
from legacy_queue.stores import Group, ProcessRow, ProcessStore
from tests.domain.sample_tasks import NOW, SECOND, pending
from tests.memory_server import FakeClock, memory_storage
from tests.services.fake_ports import Intercept, call_through, intercept_port

GROUP = "Zb0_Wh1pTLahDBzFxUqIyw"


@dataclass(frozen=True)
class Process:
    clock: FakeClock
    processes: Processes
    ledger: Ledger
    offers: Offers

    @property
    def name(self) -> str:
        return self.processes.name

    def begin(self, task_id: str, since: datetime | None = None, group: str = "", **more: Any) -> Owed:
        return self.processes.begin(task_id, since or self.clock.now(), group, **more)

    def do(self, task_id: str, **more: Any) -> str:
        """Write a task and apply all effects. Returns the version of the write."""
        owed = self.begin(task_id, **more)
        self.ledger.close([owed])
        return self.processes.version(owed)

    def looks(self) -> list[Look]:
        """What the resolver would get now, in order."""
        self.ledger.fire()
        found = []
        while look := self.ledger.next_look(waits=False):
            found.append(look)
        return found

    def close(self, looks: Sequence[Look]) -> None:
        for look in looks:
            self.ledger.close(look.owed)


class World:
    """One storage and its processes, which are called p1, p2, ..."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOW)
        self.storage = memory_storage(self.clock)
        self._count = 0

    def process(
        self, intercept: Intercept = call_through, clock: FakeClock | None = None, **options: Any
    ) -> Process:
        """A new process. ``intercept`` gets each call of its stores, such as ``write`` or ``unsettled``."""
        clock = clock or self.clock
        self._count += 1
        store = ProcessStore(self.storage.account.table("qprocesses"), clock, f"p{self._count}")
        ledger = Ledger(clock, **options)
        of_process = Processes(
            intercept_port(store, intercept),
            intercept_port(self.storage.tasks, intercept),
            intercept_port(self.storage.groups, intercept),
            ledger,
            clock,
        )
        return Process(clock, of_process, ledger, Offers(of_process, clock))

    def rows(self) -> dict[str, ProcessRow]:
        return {row.process: row for row in self.storage.processes.others()}

    def pass_by(self, seconds: float, *alive: Process) -> None:
        """Let this much time pass.

        Each second, the processes that are alive renew their rows and read the others'.
        """
        for _ in range(int(seconds)):
            self.clock.advance(SECOND)
            for process in alive:
                process.processes.tick()
                process.processes.read_others()

    def task(self, task_id: str, written: str, **changes: Any) -> Task:
        """A stored task, which is due at its deadline."""
        task = replace(pending(), task_id=task_id, **changes)
        self.storage.tasks.insert(task, written)
        return task

    def member(self, task_id: str, written: str) -> None:
        self.storage.groups.join(task_id, Group(GROUP, "scheduler", NOW), written)
