"""A crash or unavailable storage at any port call loses no task: another worker or a retry completes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.ports import Changed
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    MINUTE,
    Crash,
    FaultAt,
    Harness,
    failing,
)
from tests.services.invariants import check

DEPLOYED = ClaimProof()


@dataclass
class Scene:
    """A task, and a request about it that can be repeated."""

    harness: Harness
    task_id: str
    request: Callable[[Services], Any]

    @property
    def outcome(self) -> tuple[list[str], int]:
        return self.harness.states(self.task_id), self.harness.task(self.task_id).retries_left


def first_claim(proof: ClaimProof | None = None) -> Scene:
    harness = Harness()
    task_id = harness.create()
    message = harness.receive_one()
    return Scene(harness, task_id, lambda services: harness.claim(message, ALICE, services, proof))


def take_over(proof: ClaimProof | None = None, retries: int = 5) -> Scene:
    harness = Harness()
    task_id = harness.claimed(BOB, retries=retries)
    harness.clock.advance(CLAIM_TIMEOUT)
    message = harness.receive_one()
    return Scene(harness, task_id, lambda services: harness.claim(message, ALICE, services, proof))


def of_claimed(request: Callable[[Harness, str], Callable[[Services], Any]]) -> Scene:
    harness = Harness()
    task_id = harness.claimed(ALICE)
    harness.clock.advance(CLAIM_TIMEOUT / 2)
    return Scene(harness, task_id, request(harness, task_id))


SCENES: dict[str, Callable[[], Scene]] = {
    "claim": first_claim,
    "deployed claim": lambda: first_claim(DEPLOYED),
    "take over": take_over,
    "deployed take over": lambda: take_over(DEPLOYED),
    "reclaim": lambda: of_claimed(lambda _, task: lambda services: services.claims.reclaim(task, 0)),
    "shutdown": lambda: of_claimed(
        lambda harness, task: lambda services: harness.shut_down(task, 0, services)
    ),
    "complete": lambda: of_claimed(
        lambda harness, task: lambda services: harness.complete(task, 0, services)
    ),
    "cancel": lambda: of_claimed(lambda _, task: lambda services: services.tasks.cancel(task)),
}
SCENE = pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)


@SCENE
def test_a_write_whose_answer_was_lost_is_recognized(scene: Callable[[], Scene]) -> None:
    """The SDK repeats a write whose answer was lost, and the repeated one finds a newer ETag: its own."""
    expected = scene()
    expected.request(expected.harness.services)

    played = scene()
    played.request(played.harness.replica(FaultAt(0, of="replace", after=failing(Changed()))))
    assert played.outcome == expected.outcome
    check(played.harness, played.task_id, after_faults=False)


def test_a_crash_before_the_write_of_a_claim_leaves_a_message_one_run_ahead() -> None:
    scene = first_claim()
    harness = scene.harness
    with pytest.raises(Crash):
        scene.request(harness.replica(FaultAt(0, of="hide", after=failing(Crash()))))
    assert harness.states(scene.task_id) == ["pending"]
    assert harness.offered_runs() == [(1, CLAIM_TIMEOUT)]

    harness.clock.advance(CLAIM_TIMEOUT)
    message = harness.receive_one()
    assert message.run_id == 1
    assert harness.claim(message, BOB)["runId"] == 0
    assert harness.states(scene.task_id) == ["running by bob"]
    assert harness.offered_runs() == [(1, CLAIM_TIMEOUT)]


def test_a_crash_before_the_write_of_a_retry_claim_leaves_a_message_two_runs_ahead() -> None:
    scene = take_over()
    harness = scene.harness
    with pytest.raises(Crash):
        scene.request(harness.replica(FaultAt(0, of="hide", after=failing(Crash()))))
    assert harness.states(scene.task_id) == ["running by bob"]
    assert harness.offered_runs() == [(2, CLAIM_TIMEOUT)]

    harness.clock.advance(CLAIM_TIMEOUT)
    message = harness.receive_one()
    assert message.run_id == 2
    assert harness.claim(message, ALICE)["runId"] == 1
    assert harness.states(scene.task_id) == ["exception claim-expired", "running by alice"]
    assert harness.offered_runs() == [(2, CLAIM_TIMEOUT)]


def test_a_message_two_runs_ahead_is_deleted_after_the_task_is_resolved() -> None:
    scene = take_over()
    harness = scene.harness
    with pytest.raises(Crash):
        scene.request(harness.replica(FaultAt(0, of="hide", after=failing(Crash()))))
    harness.complete(scene.task_id)
    harness.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="resolved as completed"):
        harness.claim(harness.receive_one(), ALICE)
    assert harness.messages() == []


def test_a_worker_can_repeat_a_claim_that_crashed_before_the_write() -> None:
    scene = first_claim()
    harness = scene.harness
    with pytest.raises(Crash):
        scene.request(harness.replica(FaultAt(0, of="hide", after=failing(Crash()))))
    harness.clock.advance(MINUTE)
    assert scene.request(harness.services)["runId"] == 0
    held = harness.task(scene.task_id).held
    assert harness.offered_runs() == [(1, CLAIM_TIMEOUT - MINUTE), (1, CLAIM_TIMEOUT)]
    assert harness.messages()[1].lease == held

    harness.clock.advance(CLAIM_TIMEOUT - MINUTE)
    with pytest.raises(RequestConflict, match="duplicate"):
        harness.claim(harness.receive_one(), BOB)
    assert [message.lease for message in harness.messages()] == [held]
