"""A small workload whose storage calls are counted: in a world by this program, on Azurite by a test."""

import json
import sys
from collections import Counter
from collections.abc import Callable

from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Worker
from legacy_queue.ports.account import StorageAccount
from legacy_queue.services.composition import Services
from legacy_queue.services.tasks.claims import ClaimProof
from tests.simulation.scale import PROVISIONER, body_for
from tests.simulation.world import PREFIX, SETTINGS, Process, World

TASKS = 20
PAUSE = 12  # seconds between the calls of a task, as in scripts/scale
WORKER_TYPE = "w"
WORKER = Worker("group", "worker")


class Workload:
    """Runs tasks one after the other, every other one by claimWork. ``sleep`` lets seconds pass."""

    def __init__(
        self,
        services: Services,
        account: StorageAccount,
        prefix: str,
        new_id: Callable[[], str],
        sleep: Callable[[float], None],
    ) -> None:
        self._services = services
        self._queue = account.queue(WorkQueue(PROVISIONER, WORKER_TYPE, "lowest").name(prefix))
        self._new_id = new_id
        self._sleep = sleep

    def run(self, tasks: int) -> None:
        for number in range(tasks):
            task_id = self._new_id()
            self._services.tasks.create(task_id, body_for(self._services.clock, WORKER_TYPE))
            self._pause()
            run_id = self._claim_work() if number % 2 else self._claim(task_id)
            self._pause()
            self._services.tasks.report(task_id, run_id, "completed", "completed")
            self._pause()

    def _claim(self, task_id: str) -> int:
        [message] = self._queue.receive(1, SETTINGS.poll_visibility)
        polled, run_id, signature = read_message(message.text)
        assert polled == task_id
        proof = ClaimProof(message.lease.message_id, message.lease.receipt, signature)
        self._services.claims.claim(self._services.tasks.recall(task_id), run_id, WORKER, proof)
        return run_id

    def _claim_work(self) -> int:
        answer = self._services.claim_work.claim(PROVISIONER, WORKER_TYPE, WORKER, 1, lambda: False)
        [claim] = answer["tasks"]
        run_id: int = claim["runId"]
        return run_id

    def _pause(self) -> None:
        """What the threads of a server do meanwhile."""
        for half_seconds in range(2 * PAUSE):
            self._services.timers.tick()
            self._services.resolver.handle_all()
            self._services.pollers.watch()
            if half_seconds % 2 == 0:
                self._services.workers.flush()
            if half_seconds % 10 == 0:
                self._services.timers.receive()
            self._sleep(0.5)


def main() -> None:
    """Print the calls of storage as JSON, by what they do."""
    world = World()
    process = Process(world, 0)  # its threads do not run
    workload = Workload(process.services, world.account, PREFIX, world.task_id, world.time.sleep)
    counts: Counter[str] = Counter()

    def run() -> None:
        workload.run(2)  # the queues exist
        world.calls.clear()
        workload.run(TASKS)
        stored = {kind: count for kind, count in world.calls.items() if not kind.startswith("broker.")}
        counts.update(stored)

    world.spawn(run)
    world.time.run(ended=lambda: bool(counts))
    json.dump(counts, sys.stdout)


if __name__ == "__main__":
    main()
