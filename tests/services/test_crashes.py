"""A server that dies, or a storage that goes away, at any port call: what was not answered is not lost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.ports import Changed
from legacy_queue.services import Services
from legacy_queue.services.claims import Presented
from legacy_queue.services.timers import LEASE
from tests.services.bench import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    MINUTE,
    POLL_VISIBILITY,
    SECOND,
    At,
    Bench,
    Crash,
    failing,
)
from tests.services.invariants import check

pytestmark = pytest.mark.no_cover  # the same lines again and again: half of it would be counting them
DEPLOYED = Presented()


@dataclass
class Scene:
    """A task about which a request comes in, and what the same request says when it is repeated."""

    bench: Bench
    task_id: str
    request: Callable[[Services], Any]


def first_claim(presented: Presented | None = None) -> Scene:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    return Scene(bench, task_id, lambda services: bench.claim(message, ALICE, services, presented))


def take_over(presented: Presented | None = None, retries: int = 5) -> Scene:
    bench = Bench()
    task_id = bench.claimed(BOB, retries=retries)
    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    return Scene(bench, task_id, lambda services: bench.claim(message, ALICE, services, presented))


def of_claimed(request: Callable[[Bench, str], Callable[[Services], Any]]) -> Scene:
    bench = Bench()
    task_id = bench.claimed(ALICE)
    bench.clock.advance(CLAIM_TIMEOUT / 2)
    return Scene(bench, task_id, request(bench, task_id))


SCENES: dict[str, Callable[[], Scene]] = {
    "claim": first_claim,
    "deployed claim": lambda: first_claim(DEPLOYED),
    "take over": take_over,
    "deployed take over": lambda: take_over(DEPLOYED),
    "reclaim": lambda: of_claimed(lambda _, task: lambda services: services.claims.reclaim(task, 0)),
    "shutdown": lambda: of_claimed(lambda bench, task: lambda services: bench.shut_down(task, 0, services)),
    "complete": lambda: of_claimed(lambda bench, task: lambda services: bench.complete(task, 0, services)),
    "cancel": lambda: of_claimed(lambda _, task: lambda services: services.tasks.cancel(task)),
}
SCENE = pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
CALL = pytest.mark.parametrize("call", range(7))
KIND = pytest.mark.parametrize("error", [Crash(), ServiceUnavailable("storage is away")], ids=repr)
DONE = pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])


def interrupted(scene: Scene, call: int, error: Exception, is_done: bool) -> bool:
    """Send the request to a replica that fails at that call; whether the request got no answer."""
    fault = At(call, after=failing(error)) if is_done else At(call, before=failing(error))
    try:
        scene.request(scene.bench.replica(fault))
    except (Crash, ServiceUnavailable):
        assert fault.happened
        return True
    return False


def finish(bench: Bench, task_id: str) -> list[int]:
    """Bob polls, claims and completes until the task has ended; the runs that he got."""
    runs = []
    for _ in range(12):
        if bench.task(task_id).runs[-1].is_resolved:
            break
        for message in bench.receive():
            try:
                answer = bench.claim(message, BOB)
            except ServiceUnavailable:
                continue
            except RequestConflict:
                bench.delete_if_leased(message)
            else:
                runs.append(answer["runId"])
                bench.complete(task_id, answer["runId"])
        bench.clock.advance(POLL_VISIBILITY)
    return runs


@SCENE
@CALL
@KIND
@DONE
def test_no_crash_keeps_a_task_from_being_finished_by_the_next_who_polls(
    scene: Callable[[], Scene], call: int, error: Exception, is_done: bool
) -> None:
    played = scene()
    interrupted(played, call, error, is_done)
    check(played.bench, played.task_id, after_faults=True)
    runs = finish(played.bench, played.task_id)
    assert len(runs) <= 1
    assert played.bench.task(played.task_id).runs[-1].is_resolved
    played.bench.clock.advance(CLAIM_TIMEOUT)
    finish(played.bench, played.task_id)
    assert len(played.bench.task(played.task_id).runs) <= 3


@SCENE
@CALL
@KIND
@DONE
def test_every_crash_heals_when_the_request_is_repeated(
    scene: Callable[[], Scene], call: int, error: Exception, is_done: bool
) -> None:
    expected = scene()
    expected.request(expected.bench.services)

    played = scene()
    if interrupted(played, call, error, is_done):
        played.request(played.bench.services)
    assert played.bench.states(played.task_id) == expected.bench.states(expected.task_id)
    assert (
        played.bench.task(played.task_id).retries_left == expected.bench.task(expected.task_id).retries_left
    )
    check(played.bench, played.task_id, after_faults=False)


@SCENE
def test_a_write_that_is_taken_for_lost_is_seen_to_be_ours(scene: Callable[[], Scene]) -> None:
    """The SDK repeats a write whose answer was lost, and the repeated one finds a newer ETag: its own."""
    expected = scene()
    expected.request(expected.bench.services)

    played = scene()
    played.request(played.bench.replica(At(0, of="replace", after=failing(Changed()))))
    assert played.bench.states(played.task_id) == expected.bench.states(expected.task_id)
    assert (
        played.bench.task(played.task_id).retries_left == expected.bench.task(expected.task_id).retries_left
    )
    check(played.bench, played.task_id, after_faults=False)


def test_the_held_message_survives_a_write_that_is_taken_for_lost() -> None:
    scene = first_claim()
    scene.request(scene.bench.replica(At(0, of="replace", after=failing(Changed()))))
    assert scene.bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]
    assert scene.bench.messages()[0].lease == scene.bench.task(scene.task_id).held


def test_what_was_written_and_not_answered_is_published_by_the_timer() -> None:
    scene = first_claim()
    scene.bench.run_timers(LEASE / 2)  # after this, no other timer is about what happened
    server = scene.bench.server(At(0, of="replace", after=failing(ServiceUnavailable("the answer was lost"))))
    with pytest.raises(ServiceUnavailable):
        scene.request(server.services)
    scene.bench.run_timers(LEASE, server=server)
    assert scene.bench.events()[-1] == ("task-running", scene.task_id, 0)


def test_a_write_that_another_process_wrote_over_is_published_by_the_timer() -> None:
    """It was written, its answer was lost, and the repeated one finds what the other process wrote."""
    scene = first_claim()

    def complete_elsewhere() -> None:
        scene.bench.complete(scene.task_id)
        raise Changed

    server = scene.bench.server(At(0, of="replace", after=complete_elsewhere))
    with pytest.raises(RequestConflict):
        scene.request(server.services)
    scene.bench.run_timers(server=server)
    assert ("task-running", scene.task_id, 0) in scene.bench.events()


@pytest.mark.parametrize("error", [Changed(), ServiceUnavailable("the answer was lost")], ids=repr)
def test_retries_that_run_out_are_resolved_whatever_becomes_of_the_answer(error: Exception) -> None:
    scene = take_over(retries=0)
    with pytest.raises((RequestConflict, ServiceUnavailable)):
        scene.request(scene.bench.replica(At(0, of="replace", after=failing(error))))
    with pytest.raises(RequestConflict):
        scene.request(scene.bench.services)
    assert scene.bench.states(scene.task_id) == ["exception claim-expired"]
    assert scene.bench.messages() == []


def test_between_holding_and_writing_a_claim_the_message_comes_back_one_run_ahead() -> None:
    scene = first_claim()
    bench = scene.bench
    with pytest.raises(Crash):
        scene.request(bench.replica(At(0, of="hide", after=failing(Crash()))))
    assert bench.states(scene.task_id) == ["pending"]
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]

    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    assert message.run_id == 1
    assert bench.claim(message, BOB)["runId"] == 0
    assert bench.states(scene.task_id) == ["running by bob"]
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]


def test_between_holding_and_writing_a_take_over_the_message_comes_back_two_runs_ahead() -> None:
    scene = take_over()
    bench = scene.bench
    with pytest.raises(Crash):
        scene.request(bench.replica(At(0, of="hide", after=failing(Crash()))))
    assert bench.states(scene.task_id) == ["running by bob"]
    assert bench.runs_to_come() == [(2, CLAIM_TIMEOUT)]

    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    assert message.run_id == 2
    assert bench.claim(message, ALICE)["runId"] == 1
    assert bench.states(scene.task_id) == ["exception claim-expired", "running by alice"]
    assert bench.runs_to_come() == [(2, CLAIM_TIMEOUT)]


def test_a_message_two_runs_ahead_is_withdrawn_once_the_task_has_ended() -> None:
    scene = take_over()
    bench = scene.bench
    with pytest.raises(Crash):
        scene.request(bench.replica(At(0, of="hide", after=failing(Crash()))))
    bench.complete(scene.task_id)
    bench.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="resolved as completed"):
        bench.claim(bench.receive_one(), ALICE)
    assert bench.messages() == []


def test_a_worker_whose_claim_crashed_before_the_write_claims_again() -> None:
    scene = first_claim()
    bench = scene.bench
    with pytest.raises(Crash):
        scene.request(bench.replica(At(0, of="hide", after=failing(Crash()))))
    bench.clock.advance(MINUTE)
    assert scene.request(bench.services)["runId"] == 0
    held = bench.task(scene.task_id).held
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT - MINUTE), (1, CLAIM_TIMEOUT)]
    assert bench.messages()[1].lease == held

    bench.clock.advance(CLAIM_TIMEOUT - MINUTE)
    with pytest.raises(RequestConflict, match="stray double"):
        bench.claim(bench.receive_one(), BOB)
    assert [one.lease for one in bench.messages()] == [held]


def test_between_holding_and_writing_a_reclaim_the_stale_receipt_is_not_a_lost_claim() -> None:
    scene = SCENES["reclaim"]()
    bench = scene.bench
    with pytest.raises(Crash):
        scene.request(bench.replica(At(0, of="hide", after=failing(Crash()))))
    bench.clock.advance(MINUTE)
    answer = scene.request(bench.services)
    assert answer["takenUntil"] == "2030-01-02T03:35:05.678Z"
    held = bench.task(scene.task_id).held
    assert (1, CLAIM_TIMEOUT) in bench.runs_to_come()
    assert bench.messages()[-1].lease == held
    check(bench, scene.task_id, after_faults=False)

    bench.clock.advance(CLAIM_TIMEOUT - MINUTE)
    with pytest.raises(RequestConflict, match="stray double"):
        bench.claim(bench.receive_one(), BOB)
    bench.clock.advance(MINUTE)
    assert bench.claim(bench.receive_one(), BOB)["runId"] == 1


def test_between_writing_and_releasing_a_shutdown_the_retry_waits_for_the_held_message() -> None:
    scene = SCENES["shutdown"]()
    bench = scene.bench
    with pytest.raises(Crash):
        scene.request(bench.replica(At(0, of="replace", after=failing(Crash()))))
    assert bench.states(scene.task_id) == ["exception worker-shutdown", "pending"]
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT / 2)]
    bench.clock.advance(CLAIM_TIMEOUT / 2)
    assert bench.claim(bench.receive_one(), BOB)["runId"] == 1


def test_a_repeated_report_of_a_shutdown_offers_the_retry_at_once() -> None:
    scene = SCENES["shutdown"]()
    bench = scene.bench
    with pytest.raises(Crash):
        scene.request(bench.replica(At(0, of="replace", after=failing(Crash()))))
    scene.request(bench.services)
    assert (1, 0 * SECOND) in bench.runs_to_come()
    assert bench.claim(bench.receive_one(), BOB)["runId"] == 1


def test_a_message_that_cannot_be_withdrawn_does_not_fail_the_report() -> None:
    scene = SCENES["complete"]()
    bench = scene.bench
    away = At(0, of="remove", before=failing(ServiceUnavailable("storage is away")))
    assert scene.request(bench.replica(away)).state == "completed"
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT / 2)]
    bench.clock.advance(CLAIM_TIMEOUT / 2)
    with pytest.raises(RequestConflict, match="resolved as completed"):
        bench.claim(bench.receive_one(), BOB)
    assert bench.messages() == []


def test_a_deployed_worker_that_dies_before_it_deletes_leaves_a_double_that_is_refused() -> None:
    bench = Bench()
    task_id = bench.create()
    bench.claim(bench.receive_one(), ALICE, presented=DEPLOYED)
    bench.clock.advance(POLL_VISIBILITY)
    double = bench.receive_one()
    with pytest.raises(RequestConflict):
        bench.claim(double, BOB, presented=DEPLOYED)
    bench.delete(double)
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT - POLL_VISIBILITY)]
    bench.clock.advance(CLAIM_TIMEOUT)
    assert finish(bench, task_id) == [1]
