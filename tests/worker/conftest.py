import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Credentials, SampleWorker, Step, WorkerSettings
from legacy_queue.worker.worker_settings import WorkerClock

from .stand_in import ACCESS_TOKEN, CLIENT_ID, StandIn

LONG = 60.0  # seconds that no test takes: the end of one that would hang


class FakeClock(WorkerClock):
    """The machine's clock, moved forward by hand; a wait is told and cut short."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)
        self.waits: list[float] = []

    def now(self) -> datetime:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead.total_seconds()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        return super().wait(event, min(seconds, 0.01))


def wait_until(happens: Callable[[], bool]) -> bool:
    """Whether something outside of this process happens, such as the end of a command."""
    for _ in range(int(LONG / 0.01)):
        if happens():
            return True
        time.sleep(0.01)
    return False


class Session:
    """A worker at work, and the steps that it has told."""

    def __init__(self, settings: WorkerSettings, clock: WorkerClock, output: Path) -> None:
        self.steps: list[tuple[Step, Mapping[str, Any]]] = []
        self._acts: dict[Step, tuple[Callable[[], object], ...]] = {}
        self.output = output
        self.file = output.open("wb")
        self._told = threading.Condition()
        self.worker = SampleWorker(settings, on_step=self._on_step, clock=clock, output=self.file)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work)

    def _on_step(self, step: Step, fields: Mapping[str, Any]) -> None:
        with self._told:
            self.steps.append((step, fields))
            self._told.notify_all()
        for act in self._acts.get(step, ()):
            act()

    def on(self, step: Step, *acts: Callable[[], object]) -> None:
        """Do this whenever the step is told, before the worker goes on."""
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
        """The fields of a step, once it has been told so many times."""
        with self._told:
            assert self._told.wait_for(lambda: len(self.fields(step)) >= times, LONG), self.steps
            return self.fields(step)[times - 1]

    def fields(self, step: Step) -> list[Mapping[str, Any]]:
        return [fields for told, fields in self.steps if told is step]

    def wait_for_output(self) -> None:
        """Until the command has printed a whole line: it is up, and what it told is known."""
        assert wait_until(lambda: self.output.read_text().endswith("\n"))

    def names(self) -> list[Step]:
        """The steps but for polls and artifacts."""
        return [step for step, _ in self.steps if step not in (Step.POLL, Step.CLAIM_WORK, Step.ARTIFACT)]

    def end(self) -> None:
        """Wait for the end that the worker finds by itself, and raise what it raised."""
        self._thread.join(LONG)
        assert not self._thread.is_alive(), self.steps
        if self._failure:
            raise self._failure

    def close(self) -> None:
        self.worker.stop()
        self._thread.join(LONG)
        self.file.close()
        assert not self._thread.is_alive()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def stand_in(clock: FakeClock) -> Iterator[StandIn]:
    server = StandIn(queues=3, now=clock.now)
    yield server
    server.close()


@pytest.fixture
def settings(stand_in: StandIn) -> WorkerSettings:
    return WorkerSettings(
        base_url=stand_in.root_url + "/v1",
        credentials=Credentials(CLIENT_ID, ACCESS_TOKEN),
        provisioner_id="provisioner",
        worker_type="type",
        worker_group="group",
        worker_id="id",
    )


Prepare = Callable[..., Session]


@pytest.fixture
def prepare(settings: WorkerSettings, clock: FakeClock, tmp_path: Path) -> Iterator[Prepare]:
    """A session that is yet to be started, with some settings changed; it is stopped after the test."""
    sessions: list[Session] = []

    def prepare_session(**changes: Any) -> Session:
        session = Session(replace(settings, **changes), clock, tmp_path / f"output-{len(sessions)}")
        sessions.append(session)
        return session

    yield prepare_session
    for session in sessions:
        if session._thread.ident:
            session.close()


@pytest.fixture
def work(prepare: Prepare) -> Prepare:
    """A worker that has ended after ``max_tasks`` tasks, by default one."""

    def run(**changes: Any) -> Session:
        session = prepare(**{"max_tasks": 1, **changes}).start()
        session.end()
        return session

    return run
