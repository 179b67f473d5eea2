"""pollTaskUrls and pendingTasks. Whether the URLs are good is for tests/stores to show."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.services.pending import MOST_KNOWN, PendingCounts
from legacy_queue.stores import TaskStore
from tests.services.bench import (
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    POLL_VISIBILITY,
    PREFIX,
    PROVISIONER,
    QUEUE,
    SECOND,
    WORKER_TYPE,
    Bench,
    Message,
    task_body,
)

MILLISECOND = timedelta(milliseconds=1)


def test_the_urls_are_given_from_the_highest_priority_to_the_lowest() -> None:
    answer = Bench().services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "client")
    assert [set(queue) for queue in answer["queues"]] == [{"signedPollUrl", "signedDeleteUrl"}] * 7
    ranks = [urlsplit(queue["signedPollUrl"]).path.split("/")[-2][-1] for queue in answer["queues"]]
    assert ranks == list("7654321")


def test_the_urls_are_good_from_15_minutes_ago_to_30_ahead() -> None:
    answer = Bench().services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "client")
    assert answer["expires"] == "2030-01-02T03:34:05.678Z"
    for queue in answer["queues"]:
        query = parse_qs(urlsplit(queue["signedPollUrl"]).query)
        assert query["visibilitytimeout"] == ["300"]
        assert query["st"][0].startswith("2030-01-02T02:49:0")
        assert query["se"][0].startswith("2030-01-02T03:34:0")


def test_pending_tasks_are_counted_over_all_priorities() -> None:
    bench = Bench()
    count = bench.services.pending.count
    for priority in PRIORITIES:
        bench.create(priority=priority)
    assert count(PROVISIONER, WORKER_TYPE) == 7
    assert count(PROVISIONER, "another") == count("another", WORKER_TYPE) == 0


def test_the_count_is_an_upper_bound_while_claims_hold_messages() -> None:
    bench = Bench()
    bench.create()
    bench.create()
    bench.claim(bench.receive()[0])
    assert bench.services.pending.count(PROVISIONER, WORKER_TYPE) == 2


def test_the_count_is_exact_where_no_other_process_writes_tasks() -> None:
    """As with memory storage: held messages, doubles, and dependents that wait do not count."""
    bench = Bench()
    tasks = TaskStore(bench.account.table(f"{PREFIX}tasks"), is_only_writer=True)
    bench.core = bench.server(wrapped=lambda _: tasks)
    bench.services = bench.core.services

    def pending(worker_type: str = WORKER_TYPE) -> int:
        return bench.services.pending.count(PROVISIONER, worker_type)

    first, second = bench.create(), bench.create(priority="high")
    bench.create(workerType="another")
    bench.create(dependencies=[first])
    assert (pending(), pending("another"), pending("none")) == (2, 1, 0)
    bench.storage.work_queues.put(QUEUE, bench.messages()[0].text, HOUR, 0 * SECOND)
    bench.claim(bench.receive(1)[0])
    assert bench.states(first) == ["running by alice"]
    assert pending() == 1
    bench.services.tasks.cancel(second)
    assert pending() == 0
    bench.shut_down(first)
    assert pending() == 1
    bench.run(first, worker=BOB)
    bench.run_timers()
    assert pending() == 1  # the dependent
    bench.sweep(400 * 24 * HOUR)
    bench.run_timers()
    assert pending() == 0


def test_the_count_is_never_older_than_what_this_process_did_and_that_costs_no_operation() -> None:
    bench, counting = Bench(), Counting()
    services = bench.replica(counting, remembers=True)

    def pending() -> int:
        return services.pending.count(PROVISIONER, WORKER_TYPE)

    assert pending() == 0
    task_ids = [slugid() for _ in range(3)]
    for number, task_id in enumerate(task_ids, 1):
        services.tasks.create(task_id, task_body(bench.clock.now()))
        assert pending() == number
    bench.claim(bench.receive()[0], services=services)
    assert pending() == 3  # its message is held
    bench.complete(task_ids[0], services=services)
    assert pending() == 2
    services.tasks.cancel(task_ids[1])
    assert pending() == 2  # no lease on its message: it is stale
    assert counting.count == 7


def test_a_task_that_is_created_while_the_queues_are_counted_is_in_the_next_count() -> None:
    bench, counting = Bench(), Counting()
    services = bench.replica(counting, remembers=True)
    counting.go_on.clear()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(services.pending.count, PROVISIONER, WORKER_TYPE)
        assert counting.asked.wait(30)
        services.tasks.create(slugid(), task_body(bench.clock.now()))
        counting.go_on.set()
        assert first.result(30) in (0, 1)
    assert services.pending.count(PROVISIONER, WORKER_TYPE) == 1
    assert counting.count == 14


def test_a_task_is_found_in_the_queue_of_its_priority() -> None:
    bench = Bench()
    task = bench.task(bench.create(priority="high"))
    queue = bench.account.queue(task.work_queue.name(PREFIX))
    (polled,) = queue.receive(32, POLL_VISIBILITY)
    bench.claim(Message.read(polled))
    assert queue.receive(32, POLL_VISIBILITY) == []
    bench.clock.advance(CLAIM_TIMEOUT)
    (held,) = queue.receive(32, POLL_VISIBILITY)
    assert Message.read(held).run_id == 1


class Counting:
    """How many queues were counted; ``error`` instead where there is one, and not before ``go_on`` is set."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if name == "count":
            self.count += 1
            self.asked.set()
            assert self.go_on.wait(30)
            if self.error:
                raise self.error
        return call()


def asked_at_once(counts: PendingCounts, counting: Counting, count: int) -> list[Any]:
    """What so many callers get who ask while the first one's queues are counted."""
    counting.go_on.clear()
    counting.asked.clear()

    def ask(_number: int) -> Any:
        try:
            return counts.count(PROVISIONER, WORKER_TYPE)
        except ServiceUnavailable as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        first = threads.submit(ask, 0)
        assert counting.asked.wait(30)
        others = [threads.submit(ask, number) for number in range(1, count)]
        counting.go_on.set()
        return [one.result(30) for one in (first, *others)]


def test_the_queues_are_counted_once_in_2_seconds() -> None:
    bench, counting = Bench(), Counting()
    counts = bench.replica(counting, remembers=True).pending
    assert counts.count(PROVISIONER, WORKER_TYPE) == 0
    bench.create()
    bench.clock.advance(2 * SECOND - MILLISECOND)
    assert counts.count(PROVISIONER, WORKER_TYPE) == 0
    assert counting.count == 7
    bench.clock.advance(MILLISECOND)
    assert counts.count(PROVISIONER, WORKER_TYPE) == 1
    assert counting.count == 14
    bench.create()
    bench.clock.advance(-SECOND)
    assert counts.count(PROVISIONER, WORKER_TYPE) == 2


def test_whoever_asks_while_the_queues_are_counted_shares_the_count() -> None:
    bench, counting = Bench(), Counting()
    bench.create()
    assert asked_at_once(bench.replica(counting, remembers=True).pending, counting, 20) == [1] * 20
    assert counting.count == 7


def test_a_count_that_fails_is_told_to_all_and_the_next_one_counts_again() -> None:
    bench, counting = Bench(), Counting()
    counts = bench.replica(counting, remembers=True).pending
    counting.error = ServiceUnavailable("storage is away")
    answers = asked_at_once(counts, counting, 5)
    assert ServiceUnavailable in {type(answer) for answer in answers}
    counting.error = None
    assert counts.count(PROVISIONER, WORKER_TYPE) == 0


def test_a_count_that_fails_late_leaves_a_newer_one_alone() -> None:
    bench, numbers, begun, go_on = Bench(), itertools.count(), threading.Semaphore(0), threading.Event()

    def first_fails_late(name: str, call: Callable[[], Any]) -> Any:
        if name == "count" and next(numbers) < 7:
            begun.release()
            assert go_on.wait(30)
            raise ServiceUnavailable("storage is away")
        return call()

    counts = bench.replica(first_fails_late, remembers=True).pending
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(counts.count, PROVISIONER, WORKER_TYPE)
        assert all(begun.acquire(timeout=30) for _ in range(7))
        bench.clock.advance(2 * SECOND)
        assert counts.count(PROVISIONER, WORKER_TYPE) == 0
        go_on.set()
        assert isinstance(late.exception(30), ServiceUnavailable)
    bench.create()
    assert counts.count(PROVISIONER, WORKER_TYPE) == 0  # what is known is still fresh


def test_the_memory_for_counts_is_bounded() -> None:
    bench, counting = Bench(), Counting()
    counts = bench.replica(counting, remembers=True).pending
    for number in range(MOST_KNOWN + 1):
        counts.count(PROVISIONER, f"w{number}")
    counted = counting.count
    counts.count(PROVISIONER, f"w{MOST_KNOWN}")
    assert counting.count == counted
    counts.count(PROVISIONER, "w0")
    assert counting.count == counted + 7
