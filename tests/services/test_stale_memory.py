"""A replica that remembers any older version of a task gives the same answers; it only needs more calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.task import Task
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from legacy_queue.stores import StoredTask, TaskStore
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    MINUTE,
    Crash,
    FaultAt,
    Harness,
    Message,
    call_through,
    failing,
)
from tests.services.invariants import check
from tests.services.ports import DelegatingTasks, Intercept

DEPLOYED = ClaimProof()


class StaleTasks(DelegatingTasks):
    """Always recalls one old version."""

    def __init__(self, tasks: TaskStore, remembered: StoredTask | None) -> None:
        super().__init__(tasks)
        self._remembered = remembered

    def recall(self, task_id: str) -> StoredTask | None:  # noqa: ARG002
        return self._remembered


def stale_tasks(tasks: TaskStore, remembered: StoredTask | None) -> TaskStore:
    return cast(TaskStore, StaleTasks(tasks, remembered))


@dataclass
class History:
    """A task in some state, and every version before that."""

    harness: Harness = field(default_factory=Harness)
    versions: list[StoredTask] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.task_id = self.harness.create()
        self._record()

    def _record(self) -> None:
        stored = self.harness.storage.tasks.load(self.task_id)
        assert stored
        self.versions.append(stored)

    def poll(self) -> Message:
        self.messages = self.harness.receive()
        return self.messages[0]

    def claim(self) -> "History":
        self.harness.claim(self.messages[0] if self.messages else self.poll(), ALICE)
        self._record()
        return self

    def reclaim(self) -> "History":
        self.harness.clock.advance(CLAIM_TIMEOUT / 2)
        self.harness.services.claims.reclaim(self.task_id, 0)
        self._record()
        return self

    def expire(self) -> "History":
        self.harness.clock.advance(CLAIM_TIMEOUT)
        self.poll()
        return self

    def shut_down(self) -> "History":
        self.harness.shut_down(self.task_id)
        self._record()
        self.poll()
        return self

    def complete(self) -> "History":
        self.harness.complete(self.task_id)
        self._record()
        return self

    def cancel(self) -> "History":
        self.harness.services.tasks.cancel(self.task_id)
        self._record()
        return self


def polled() -> History:
    history = History()
    history.poll()
    return history


HISTORIES: dict[str, Callable[[], History]] = {
    "pending": polled,
    "claimed": lambda: History().claim(),
    "reclaimed": lambda: History().claim().reclaim(),
    "expired": lambda: History().claim().reclaim().expire(),
    "taken over": lambda: History().claim().expire().claim(),
    "shut down": lambda: History().claim().shut_down(),
    "claimed after a shutdown": lambda: History().claim().shut_down().claim(),
    "completed": lambda: History().claim().complete(),
    "completed late": lambda: History().claim().expire().complete(),
    "canceled": lambda: History().claim().cancel(),
}
Request = Callable[[History, Services], Any]


def claim(worker: Any, run_id: int | None = None, proof: ClaimProof | None = None) -> Request:
    def act(history: History, services: Services) -> Any:
        message = history.messages[-1]
        unsigned = None if run_id is None else ClaimProof(message.lease.message_id, message.lease.receipt)
        return history.harness.claim(message, worker, services, proof or unsigned, run_id)

    return act


REQUESTS: dict[str, Request] = {
    "claim the message": claim(BOB),
    "claim it as the worker before": claim(ALICE),
    "claim it as a deployed worker": claim(BOB, proof=DEPLOYED),
    "claim run 0 with it": claim(BOB, 0),
    "claim run 1 with it": claim(BOB, 1),
    "claim run 1 without": claim(BOB, 1, DEPLOYED),
    "reclaim run 0": lambda history, services: services.claims.reclaim(history.task_id, 0),
    "reclaim run 1": lambda history, services: services.claims.reclaim(history.task_id, 1),
    "complete run 0": lambda history, services: history.harness.complete(history.task_id, 0, services),
    "complete run 1": lambda history, services: history.harness.complete(history.task_id, 1, services),
    "shut down run 0": lambda history, services: history.harness.shut_down(history.task_id, 0, services),
    "cancel": lambda history, services: services.tasks.cancel(history.task_id),
}


def replica(harness: Harness, remembered: StoredTask | None, intercept: Intercept = call_through) -> Services:
    return harness.replica(intercept, wrap_tasks=lambda tasks: stale_tasks(tasks, remembered))


def outcome(history: History, request: Request, remembered: StoredTask | None) -> list[Any]:
    """The answer, and the task after it."""
    harness = history.harness
    harness.clock.advance(MINUTE / 2)
    try:
        result = request(history, replica(harness, remembered))
    except QueueError as refusal:
        result = type(refusal), refusal.status
    else:
        result = result.state if isinstance(result, Task) else (result["runId"], result["takenUntil"])
    task = harness.task(history.task_id)
    return [result, harness.states(history.task_id), task.retries_left, task.runs[-1].taken_until]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_answered_alike_whichever_version_of_the_task_is_remembered(
    history: Callable[[], History], request_: Request
) -> None:
    expected = outcome(history(), request_, None)
    for index in range(len(history().versions)):
        played = history()
        assert outcome(played, request_, played.versions[index]) == expected
        check(played.harness, played.task_id, after_faults=False)


def test_a_remembered_task_that_was_deleted_is_not_found() -> None:
    history = HISTORIES["claimed"]()
    stored = history.versions[-1]
    empty = Harness()
    services = empty.replica(wrap_tasks=lambda tasks: stale_tasks(tasks, stored))
    with pytest.raises(QueueError, match="there is no task"):
        services.claims.reclaim(history.task_id, 0)
    with pytest.raises(QueueError, match="there is no task"):
        services.tasks.cancel(history.task_id)


@pytest.mark.parametrize("name", ["expired", "shut down"])
@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("is_done", [False, True])
def test_a_crash_of_a_replica_that_remembers_an_old_task_loses_no_message(
    name: str, call: int, is_done: bool
) -> None:
    """The claim presents the only message of the task."""
    for index in range(len(HISTORIES[name]().versions)):
        history = HISTORIES[name]()
        fault = FaultAt(call, after=failing(Crash())) if is_done else FaultAt(call, before=failing(Crash()))
        try:
            history.harness.claim(
                history.messages[0], BOB, replica(history.harness, history.versions[index], fault)
            )
        except Crash:
            assert fault.happened
        check(history.harness, history.task_id, after_faults=True)
