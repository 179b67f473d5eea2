import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from legacy_queue.worker import Credentials, SampleWorker, Step, WorkerSettings
from legacy_queue.worker.worker_settings import Context, WorkerClock

from .fake_queue import ACCESS_TOKEN, CLIENT_ID, FakeQueue

LONG = 60.0  # seconds: the timeout of whatever a test waits for


class FakeClock(WorkerClock):
    """The machine's clock, which a test moves forward. Pauses below a minute are recorded and cut short."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        self.pauses: list[float] = []

    def now(self) -> datetime:
        return super().now() + self.ahead

    def wait(self, event: threading.Event, duration: timedelta) -> bool:
        end = self.now() + duration
        if duration < timedelta(minutes=1):
            self.pauses.append(duration.total_seconds())
            return event.wait(0.01)
        while not (is_set := event.wait(0.01)) and self.now() < end:
            pass
        return is_set


def wait_until(happens: Callable[[], bool]) -> bool:
    """Wait for something outside of this process, such as the end of a command; False at the timeout."""
    for _ in range(int(LONG / 0.01)):
        if happens():
            return True
        time.sleep(0.01)
    return False


class Session:
    """A worker in a thread, and the steps that it reports."""

    def __init__(self, settings: WorkerSettings, clock: WorkerClock) -> None:
        self.steps: list[tuple[Step, Mapping[str, Any]]] = []
        self._acts: dict[Step, tuple[Callable[[], object], ...]] = {}
        self._reported = threading.Condition()
        self.worker = SampleWorker(settings, on_step=self._on_step, clock=clock)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work)

    def _on_step(self, step: Step, fields: Mapping[str, Any]) -> None:
        with self._reported:
            self.steps.append((step, fields))
            self._reported.notify_all()
        for act in self._acts.get(step, ()):
            act()

    def on(self, step: Step, *acts: Callable[[], object]) -> None:
        """Call these at each such step, before the worker goes on."""
        self._acts[step] = acts

    def _work(self) -> None:
        try:
            self.worker.run()
        except Exception as failure:  # noqa: BLE001  raised again by ``end``
            self._failure = failure

    def start(self) -> "Session":
        self._thread.start()
        return self

    def wait_for(self, step: Step, times: int = 1) -> Mapping[str, Any]:
        """Wait until the step was reported ``times`` times; return the fields of the last of them."""
        with self._reported:
            assert self._reported.wait_for(lambda: len(self.fields(step)) >= times, LONG), self.steps
            return self.fields(step)[times - 1]

    def fields(self, step: Step) -> list[Mapping[str, Any]]:
        return [fields for reported, fields in self.steps if reported is step]

    def failures(self) -> list[str]:
        return [str(fields["detail"]) for fields in self.fields(Step.FAILURE)]

    def names(self) -> list[Step]:
        """The steps without polls and artifacts."""
        return [step for step, _ in self.steps if step not in (Step.POLL, Step.ARTIFACT)]

    def end(self) -> None:
        """Wait until the worker ends by itself; raises its error."""
        self._thread.join(LONG)
        assert not self._thread.is_alive(), self.steps
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Stop the worker, if it was started."""
        if self._thread.ident:
            self.worker.stop()
            self._thread.join(LONG)
        assert not self._thread.is_alive()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def fake_queue(clock: FakeClock) -> Iterator[FakeQueue]:
    server = FakeQueue(queues=3, now=clock.now)
    yield server
    server.close()


@pytest.fixture
def settings(fake_queue: FakeQueue) -> WorkerSettings:
    return WorkerSettings(
        base_url=fake_queue.root_url + "/v1",
        credentials=Credentials(CLIENT_ID, ACCESS_TOKEN),
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
    sessions: list[Session] = []

    def prepare_session(**changes: Any) -> Session:
        session = Session(replace(settings, **changes), clock)
        sessions.append(session)
        return session

    yield prepare_session
    for session in sessions:
        session.close()


@pytest.fixture
def work(prepare: Prepare) -> Prepare:
    """Run a worker until its end after ``max_tasks`` tasks, by default 1."""

    def run(**changes: Any) -> Session:
        session = prepare(**{"max_tasks": 1, **changes}).start()
        session.end()
        return session

    return run
