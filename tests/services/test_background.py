"""The threads of a server process: they do their work, and end when they are told to."""

import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.timers import FIRST_FIRES_AFTER
from legacy_queue.domain.workers import worker_path
from legacy_queue.services.background import Background
from legacy_queue.services.core import Core
from tests.services.bench import ALICE, CLAIM_TIMEOUT, HOUR, MINUTE, PROVISIONER, SECOND, WORKER_TYPE, Bench
from tests.services.ports import HandBroker

PATIENCE = 30  # seconds: of a test that would otherwise fail by never ending


@contextmanager
def running(server: Core) -> Iterator[Background]:
    background = server.background()
    background.start()
    try:
        yield background
    finally:
        background.stop()


def claimed_by(server: Core, bench: Bench) -> str:
    task_id = bench.create()
    message = next(one for one in bench.receive() if one.task_id == task_id)
    bench.claim(message, ALICE, server.services)
    return task_id


class Seen:
    """Around port calls: whether one of that name has been made, or that many."""

    def __init__(self, name: str, count: int = 1, error: Exception | None = None) -> None:
        self._name, self._left, self._error = name, count, error
        self.happened = threading.Event()

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if name != self._name or self.happened.is_set():
            return call()
        self._left -= 1
        try:
            if self._error:
                raise self._error
            return call()
        finally:
            if self._left <= 0:
                self.happened.set()

    def wait(self) -> None:
        assert self.happened.wait(PATIENCE)


def test_what_is_resolved_is_followed_by_its_dependents_without_anybody_asking() -> None:
    seen = Seen("deactivate")
    bench = Bench()
    server = bench.server(seen)
    with running(server):
        task_id = claimed_by(server, bench)
        waiting = bench.create(dependencies=[task_id])
        bench.complete(task_id, services=server.services)
        seen.wait()
    assert bench.states(waiting) == ["pending"]


def test_every_queue_of_timers_and_every_chore_is_looked_at() -> None:
    bench = Bench()
    bench.claimed(retries=0)
    bench.core.timers.settle_all(HOUR)
    bench.clock.advance(CLAIM_TIMEOUT + SECOND)
    trimmed = Seen("log.trim")
    removed = Seen("timer.remove")
    server = bench.server(lambda name, call: trimmed(name, lambda: removed(name, call)))
    with running(server):
        trimmed.wait()
        removed.wait()
    assert bench.timers("claims") == []


def test_who_is_new_is_written_while_the_process_runs() -> None:
    bench = Bench()
    written = Seen("worker.insert", 3)
    server = bench.server(written)
    with running(server):
        claimed_by(server, bench)
        written.wait()
        path = worker_path(PROVISIONER, WORKER_TYPE, ALICE)
        assert bench.replica().workers.describe(path)["recentTasks"]


def test_a_process_that_ends_has_confirmed_its_timers() -> None:
    bench = Bench()
    server = bench.server()
    with running(server):
        claimed_by(server, bench)
    assert [timer.untold for timer, _ in bench.timers("claims")] == [()]


def test_timers_are_confirmed_while_the_process_runs() -> None:
    bench = Bench()
    hidden = Seen("timer.hide")
    server = bench.server(hidden)
    with running(server):
        claimed_by(server, bench)
        bench.clock.advance(FIRST_FIRES_AFTER / 2)
        hidden.wait()
        assert [timer.untold for timer, _ in bench.timers("claims")] == [()]


def test_events_that_wait_are_published_when_the_broker_is_back() -> None:
    broker = HandBroker()
    bench = Bench(broker=broker)
    broker.room = 0
    bench.create()
    broker.room = None
    published = Seen("turn.keep", 2)
    with running(bench.server(published, resolves=False)):
        published.wait()
    assert [event.exchange for event in broker.told] == ["task-defined", "task-pending"]


@pytest.mark.parametrize(
    ("error", "event"),
    [(ServiceUnavailable("storage is away"), None), (ValueError("a defect"), "events-not-published")],
)
def test_publishing_goes_on_after_a_failure(
    error: Exception, event: str | None, logs: list[MutableMapping[str, Any]]
) -> None:
    broker = HandBroker()
    bench = Bench(broker=broker)
    bench.create()
    failed, published = Seen("timer.peek", error=error), Seen("turn.keep", 2)
    server = bench.server(lambda name, call: published(name, lambda: failed(name, call)), resolves=False)
    with running(server):
        published.wait()
    assert [one.exchange for one in broker.told] == ["task-defined", "task-pending"]
    assert [one["event"] for one in logs] == ([event] if event else [])


def test_storage_that_is_away_does_not_end_the_confirming(logs: list[MutableMapping[str, Any]]) -> None:
    bench = Bench()
    away = Seen("timer.hide", error=ServiceUnavailable("storage is away"))
    again = Seen("timer.hide", 2)
    server = bench.server(lambda name, call: again(name, lambda: away(name, call)), resolves=False)
    with running(server):
        claimed_by(server, bench)
        bench.clock.advance(FIRST_FIRES_AFTER / 2)
        away.wait()
        claimed_by(server, bench)
        bench.clock.advance(FIRST_FIRES_AFTER / 2)
        again.wait()
    assert "timers-not-confirmed" in [one["event"] for one in logs]


def test_a_defect_does_not_end_the_confirming(logs: list[MutableMapping[str, Any]]) -> None:
    bench = Bench()
    fails, again = Seen("timer.hide", error=ValueError("a defect")), Seen("timer.hide", 2)
    server = bench.server(lambda name, call: again(name, lambda: fails(name, call)), resolves=False)
    with running(server):
        for _ in range(2):
            claimed_by(server, bench)
            bench.clock.advance(FIRST_FIRES_AFTER / 2)
            fails.wait()
        again.wait()
    assert [one["log_level"] for one in logs if one["event"] == "timers-not-confirmed"] == ["error"]


def test_a_process_ends_though_storage_is_away(logs: list[MutableMapping[str, Any]]) -> None:
    """Its timers fire then, and tell again what was told."""
    bench = Bench()
    away = Seen("timer.hide", 99, error=ServiceUnavailable("storage is away"))
    server = bench.server(away, resolves=False)
    with running(server):
        task_id = claimed_by(server, bench)
    assert "timers-not-confirmed" in [one["event"] for one in logs]
    bench.run_timers(MINUTE)
    assert bench.events().count(("task-running", task_id, 0)) == 2


def test_a_process_that_does_not_resolve_has_no_threads_for_it() -> None:
    bench = Bench()
    before = threading.active_count()
    with running(bench.server(resolves=False)):
        assert threading.active_count() == before + 4
    with running(bench.server()):
        assert threading.active_count() >= before + 7
    assert threading.active_count() == before


def test_what_is_stopped_twice_has_stopped() -> None:
    bench = Bench()
    background = bench.server().background()
    background.start()
    for _ in range(2):
        background.stop()
    assert background.stopping.is_set()


def test_what_was_never_started_is_stopped_too() -> None:
    bench = Bench()
    server = bench.server()
    claimed_by(server, bench)
    server.background().stop()
    assert [timer.untold for timer, _ in bench.timers("claims")] == [()]


def test_what_is_left_to_confirm_at_the_end_is_told(logs: list[MutableMapping[str, Any]]) -> None:
    bench = Bench()

    def slow(name: str, call: Callable[[], Any]) -> Any:
        if name == "timer.hide":
            bench.clock.advance(SECOND)
        return call()

    server = bench.server(slow, resolves=False)
    for _ in range(70):
        claimed_by(server, bench)
    server.background().stop()
    (told,) = [one for one in logs if one["event"] == "timers-not-confirmed"]
    assert told["left"] > 0
