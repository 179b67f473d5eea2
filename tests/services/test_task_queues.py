"""Which tasks of a task queue are pending and running, how many, and what it costs."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.services.composition import Services
from legacy_queue.services.tasks.task_queues import MAX_AGE, TaskQueues
from tests.services.harness import BOB, HOUR, PROVISIONER, QUEUE, SECOND, WORKER_TYPE, Harness, task_body

POOL = f"{PROVISIONER}/{WORKER_TYPE}"
MILLISECOND = timedelta(milliseconds=1)


class Reading:
    """Counts the reads of a page of tasks. Each waits for ``go_on``, and raises ``error`` if it is set."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.on_read: Callable[[], object] = lambda: None

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if name != "read_into":
            return call()
        self.count += 1
        self.begun.set()
        assert self.go_on.wait(30)
        self.on_read()
        if self.error:
            raise self.error
        return call()


def counts(services: Services, task_queue_id: str = POOL) -> tuple[int, int]:
    return services.task_queues.counts([task_queue_id])[0]


def listed(queues: TaskQueues, state: str, limit: int = 1000) -> list[list[str]]:
    """taskIds, page by page."""
    pages, after = [], ""
    while True:
        page = queues.tasks(POOL, state, after, limit, lambda task: task.task_id.encode())
        pages.append([item.decode() for item in page.items])
        if page.after is None:
            return pages
        after = page.after


def test_changes_of_this_process_are_counted_at_once_without_a_read() -> None:
    """Held messages, duplicates and waiting dependents are not counted."""
    harness, reading = Harness(), Reading()
    services = harness.replica(reading, caches_tasks=True)
    assert counts(services) == (0, 0)
    first, second, third = (slugid() for _ in range(3))
    for task_id, more in ((first, {}), (second, {"priority": "high"}), (third, {"dependencies": [first]})):
        services.tasks.create(task_id, task_body(harness.clock.now(), **more))
    assert counts(services) == (2, 0)
    harness.storage.work_queues.put(QUEUE, harness.messages()[0].text, HOUR, 0 * SECOND)
    harness.claim(
        next(message for message in harness.receive() if message.task_id == first), services=services
    )
    assert counts(services) == (1, 1)
    services.tasks.report(first, 0, "exception", "worker-shutdown")
    assert counts(services) == (2, 0)
    services.tasks.cancel(second)
    assert counts(services) == (1, 0)
    services.tasks.cancel(first)
    assert counts(services) == (0, 0)
    services.tasks.schedule(third)
    assert counts(services) == (1, 0)
    assert reading.count == 1


def test_changes_of_other_processes_are_counted_after_2_seconds() -> None:
    harness, reading = Harness(), Reading()
    services = harness.replica(reading, caches_tasks=True)
    assert counts(services) == (0, 0)
    harness.services.tasks.create(slugid(), task_body())
    harness.clock.advance(MAX_AGE - MILLISECOND)
    assert (counts(services), reading.count) == ((0, 0), 1)
    harness.clock.advance(MILLISECOND)
    assert (counts(services), reading.count) == ((1, 0), 2)


def test_at_most_a_quarter_of_the_time_is_spent_reading() -> None:
    harness, reading = Harness(), Reading()
    services = harness.replica(reading, caches_tasks=True)
    reading.on_read = lambda: harness.clock.advance(5 * SECOND)
    for passed, expected in ((0, 1), (14_999, 1), (1, 2)):
        harness.clock.advance(passed * MILLISECOND)
        counts(services)
        assert reading.count == expected


def test_concurrent_calls_share_a_reading_and_its_failure() -> None:
    harness, reading = Harness(), Reading()
    harness.create()
    for error, expected in ((ServiceUnavailable("storage is away"), ServiceUnavailable), (None, tuple)):
        services = harness.replica(reading, caches_tasks=True)
        reading.error = error
        reading.go_on.clear()
        reading.begun.clear()

        def ask(_number: int, services: Services = services) -> type:
            try:
                return type(counts(services))
            except ServiceUnavailable as failure:
                return type(failure)

        with ThreadPoolExecutor(5) as threads:
            first = threads.submit(ask, 0)
            assert reading.begun.wait(30)
            others = [threads.submit(ask, number) for number in range(4)]
            reading.go_on.set()
            results = {future.result(30) for future in (first, *others)}
        assert expected in results
        reading.error = None
        assert counts(services) == (1, 0)


def test_tasks_are_listed_in_the_order_of_their_waiting_and_no_message_is_received(harness: Harness) -> None:
    waiting = []
    for priority in PRIORITIES:
        waiting.append(harness.create(priority=priority))
        harness.clock.advance(SECOND)
    harness.create(workerType="another")
    harness.create(dependencies=[waiting[0]])
    queues = harness.services.task_queues
    for limit in (1, 3, 7, 8):
        pages = listed(queues, "pending", limit)
        assert [task_id for page in pages for task_id in page] == waiting
        assert [len(page) for page in pages] == [limit] * (7 // limit) + [7 % limit] * bool(7 % limit)
    assert sum(message.dequeue_count for message in harness.messages()) == 0
    assert listed(queues, "running") == [[]]
    message = harness.receive()[0]
    harness.claim(message, worker=BOB)
    assert listed(queues, "running") == [[message.task_id]]
    assert message.task_id not in listed(queues, "pending")[0]


COUNTED = """
from gevent import monkey

monkey.patch_all()
import itertools
import os
import gevent
from gevent.socket import wait_read
from legacy_queue.services.tasks.listing import Wanted
from tests.services.harness import Harness

many, large = Harness(), Harness()
for _ in range(600):
    many.create()
GROUP = "VLdaX5vAQ0iW8JIr3sGQZw"
for _ in range(12):
    large.create(taskGroupId=GROUP, payload={"log": "x" * 200_000})
turns = itertools.count(0)


end, other_end = os.pipe()


def go_on():
    # as a request does that waits for its client
    while True:
        os.write(other_end, b"!")
        wait_read(end)
        os.read(end, 1)
        next(turns)


gevent.spawn(go_on)
POOL = "provisioner/worker-Type_1"
for harness, read in (
    (many, lambda services: services.task_queues.counts([POOL])),
    (many, lambda services: services.task_queues.open_counts()),
    (many, lambda services: services.task_queues.tasks(POOL, "pending", "", 600, lambda task: b"1")),
    (large, lambda services: services.task_queues.tasks(POOL, "pending", "", 12, lambda task: b"1")),
    (large, lambda services: services.listing.search(Wanted(), "", 12, lambda task: b"1")),
    (large, lambda services: services.listing.search(Wanted(group_id=GROUP), "", 12, lambda task: b"1")),
):
    before = next(turns)
    read(harness.replica())
    print(next(turns) - before - 1)
"""


@pytest.mark.processes
def test_other_requests_go_on_while_rows_are_read() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    assert all(int(turns) >= 5 for turns in ran.stdout.split()), ran.stdout
