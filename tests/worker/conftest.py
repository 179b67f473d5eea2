import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemClock
from legacy_queue.worker import SampleWorker, Step, WorkerSettings
from legacy_queue.worker.worker_settings import Context, WorkerClock
from tests.system.processes import LONG

from .scripted_queue import ROOT, ScriptedQueue


class QueueClock(SystemClock):
    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


class FakeClock(WorkerClock):
    """The queue's clock, which a test moves forward. Pauses below a minute are recorded and cut short."""

    def __init__(self) -> None:
        self.of_queue = QueueClock()
        self.pauses: list[float] = []

    def now(self) -> datetime:
        return self.of_queue.now()

    def advance(self, **duration: float) -> None:
        self.of_queue.ahead += timedelta(**duration)

    def wait(self, event: threading.Event, duration: timedelta) -> bool:
        end = self.now() + duration
        if duration < timedelta(minutes=1):
            self.pauses.append(duration.total_seconds())
            return event.wait(0.01)
        while not (is_set := event.wait(0.01)) and self.now() < end:
            pass
        return is_set


class Session:
    """A worker in a thread, and the steps that it reports."""

    def __init__(self, settings: WorkerSettings, clock: WorkerClock) -> None:
        self.steps: list[tuple[Step, Mapping[str, Any]]] = []
        self._acts: dict[Step, tuple[Callable[[], object], ...]] = {}
        self._reported = threading.Condition()
        self.worker = SampleWorker(settings, on_step=self._on_step, clock=clock)
        self._thread = ThreadPoolExecutor(1)
        self._ended: Future[None] | None = None

    def _on_step(self, step: Step, fields: Mapping[str, Any]) -> None:
        with self._reported:
            self.steps.append((step, fields))
            self._reported.notify_all()
        for act in self._acts.get(step, ()):
            act()

    def on(self, step: Step, *acts: Callable[[], object]) -> None:
        """Call these at each such step, before the worker goes on."""
        self._acts[step] = acts

    def start(self) -> "Session":
        self._ended = self._thread.submit(self.worker.run)
        return self

    def run(self) -> None:
        """Start the worker, and wait until it ends by itself; raises its error."""
        self.start().end()

    def wait_for(self, step: Step, times: int = 1) -> Mapping[str, Any]:
        """Wait until the step was reported ``times`` times; return the fields of the last of them."""
        with self._reported:
            assert self._reported.wait_for(lambda: len(self.fields(step)) >= times, LONG), self.steps
            return self.fields(step)[times - 1]

    def fields(self, step: Step) -> list[Mapping[str, Any]]:
        return [fields for reported, fields in self.steps if reported is step]

    def failures(self) -> list[str]:
        return [str(fields["detail"]) for fields in self.fields(Step.FAILURE)]

    def end(self) -> None:
        """Wait until the worker ends by itself; raises its error."""
        assert self._ended
        self._ended.result(LONG)

    def close(self) -> None:
        """Stop the worker, if it still runs."""
        self.worker.stop()
        self._thread.shutdown()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> Iterator[ScriptedQueue]:
    queue = ScriptedQueue(clock.of_queue)
    yield queue
    queue.close()


@pytest.fixture
def settings(queue: ScriptedQueue) -> WorkerSettings:
    return WorkerSettings(
        base_url=queue.root_url + "/v1",
        credentials=ROOT,
        provisioner_id="provisioner",
        worker_type="type",
        worker_group="group",
        worker_id="id",
    )


@pytest.fixture
def context(settings: WorkerSettings, clock: FakeClock) -> Context:
    context = Context(settings, clock, lambda *_, **__: None)
    context.no_more_claims.set()
    return context


Prepare = Callable[..., Session]


@pytest.fixture
def prepare(settings: WorkerSettings, clock: FakeClock) -> Iterator[Prepare]:
    """Make a session with some settings changed, which the test starts; it is stopped after the test."""
    with ExitStack() as stack:

        def prepare_session(**changes: Any) -> Session:
            session = Session(replace(settings, **{"max_tasks": 1, **changes}), clock)
            stack.callback(session.close)
            return session

        yield prepare_session


@pytest.fixture
def work(prepare: Prepare) -> Prepare:
    """Run a worker until its end after ``max_tasks`` tasks, by default 1."""

    def run(**changes: Any) -> Session:
        session = prepare(**changes)
        session.run()
        return session

    return run
