"""Timers apply the effects that a server leaves missing when it crashes, or when storage or broker are away.

Each scene is played without a fault, and with a fault at each of its port calls. A fault leaves either the
state before the request, or the state after it with all effects: every event published, messages offered,
dependents released and groups resolved. After any fault, the same request repeated has all its effects.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from legacy_queue.domain.errors import QueueError, RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.ports import BrokerAway
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from tests.services.artifact_calls import NAME, body, etag, in_parts, upload
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    QUEUE,
    SECOND,
    CallRecorder,
    Crash,
    FaultAt,
    Harness,
    Message,
    PublishedEvent,
    call_through,
    failing,
    task_body,
)
from tests.services.ports import Intercept

BY_NAME = ClaimProof()

UNCOUNTED = pytest.mark.no_cover  # the same lines again and again: half of it would be counting them


@dataclass
class Scene:
    """A request that comes in, and the tasks and groups that it may change."""

    harness: Harness
    request: Callable[[Services], object]
    tasks: Sequence[str]
    groups: Sequence[str] = ()
    swept: Sequence[str] = ("join", "timer.put")  # calls after whose fault only the sweeper can repair
    beside: Callable[[], object] = lambda: None  # further state to compare

    def play(self, fault: Intercept = call_through) -> Services:
        """Send the request to a new server, whatever it answers. Returns the server."""
        faults: list[Intercept] = []

        def intercept(name: str, call: Callable[[], Any]) -> Any:
            try:
                return faults[0](name, call) if faults else call()
            except ServiceUnavailable as away:
                raise BrokerAway if name.startswith("broker.") else away from None

        server = self.harness.replica(intercept)
        faults.append(fault)
        with suppress(RequestConflict, ServiceUnavailable, Crash):
            self.request(server)
        faults.clear()
        return server

    def answer(self, fault: Intercept) -> BaseException | None:
        """The refusal of a server with this fault, None if it succeeds."""
        server = self.harness.replica(fault)
        try:
            self.request(server)
        except (QueueError, ValueError) as refusal:
            return refusal
        return None

    def outcome(self, sweeps: bool = False) -> tuple[list[Any], list[PublishedEvent]]:
        """The state of all tasks and groups, and the events, after all timers have fired."""
        for _ in range(17):
            self.harness.run_timers(MINUTE)
        events = self.harness.events()  # before the sweep
        if sweeps:
            assert self.harness.services.periodic_jobs
            self.harness.services.periodic_jobs.do_due(threading.Event())
            self.harness.run_timers()
        world = [*map(self.active, self.groups), *map(self.status, self.tasks), self.beside()]
        names = {one: f"task {number}" for number, one in enumerate(self.tasks)}
        names |= {one: f"group {number}" for number, one in enumerate(self.groups) if one not in names}
        events = list(dict.fromkeys([*events, *self.harness.events()]))  # without repetitions
        return world, [(event, names[about], run_id) for event, about, run_id in events if about in names]

    def active(self, task_group_id: str) -> int:
        """The number of active members."""
        rows = self.harness.storage.groups.all_active("", 1000)[0]
        return sum(row.task_group_id == task_group_id for row in rows)

    def status(self, task_id: str) -> tuple[list[str], int] | None:
        if self.harness.storage.tasks.load(task_id) is None:
            return None
        task = self.harness.task(task_id)
        if task.state == "pending":
            offered = {
                (message.task_id, message.run_id) for message in map(Message.read, self.harness.messages())
            }
            assert offered & {(task_id, len(task.runs) - 1), (task_id, len(task.runs))}
        return self.harness.states(task_id), task.retries_left


Maker = Callable[[Harness], Scene]


def wait(harness: Harness, duration: timedelta) -> None:
    """Stop the server, and start it again after ``duration``."""
    harness.services.timers.hand_over()
    harness.clock.advance(duration)
    harness.services = harness.replica()


def waiting_for(harness: Harness, required: str, **changes: Any) -> str:
    return harness.create(dependencies=[required], **changes)


def create(harness: Harness, **changes: Any) -> Scene:
    task_id, group = slugid(), slugid()
    body = task_body(harness.clock.now(), taskGroupId=group, **changes)
    return Scene(harness, lambda server: server.tasks.create(task_id, body), [task_id], [group])


def create_waiting(harness: Harness) -> Scene:
    return create(harness, dependencies=[harness.create()])


def create_satisfied(harness: Harness) -> Scene:
    required = harness.create()
    harness.run(required)
    return create(harness, dependencies=[required])


def create_again(harness: Harness, *, is_resolved: bool) -> Scene:
    scene = create(harness)
    scene.request(harness.services)
    if is_resolved:
        (task_id,) = scene.tasks
        harness.run(task_id)
    harness.run_timers()
    return scene


def create_another(harness: Harness) -> Scene:
    """A definition that is refused: another group, another dependency, for a taskId that there is."""
    required, others = harness.create(), slugid()
    group = slugid()
    task_id = harness.create(taskGroupId=others)
    body = task_body(harness.clock.now(), taskGroupId=group, dependencies=[required])
    return Scene(harness, lambda server: server.tasks.create(task_id, body), [task_id], [group, others])


def create_for_another_scheduler(harness: Harness) -> Scene:
    group, task_id = slugid(), slugid()
    harness.create(taskGroupId=group, schedulerId="first")
    body = task_body(harness.clock.now(), taskGroupId=group, schedulerId="second")
    return Scene(harness, lambda server: server.tasks.create(task_id, body), [task_id], [group])


def define(harness: Harness) -> Scene:
    task_id = slugid()
    body = task_body(harness.clock.now())
    return Scene(harness, lambda server: server.tasks.define(task_id, body), [task_id], [task_id])


def defined(harness: Harness) -> str:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body(harness.clock.now()))
    return task_id


def schedule(harness: Harness) -> Scene:
    task_id = defined(harness)
    return Scene(harness, lambda server: server.tasks.schedule(task_id), [task_id])


def claim(harness: Harness, proof: ClaimProof | None = None) -> Scene:
    task_id = harness.create()
    message = harness.receive_one()
    return Scene(harness, lambda server: harness.claim(message, ALICE, server, proof), [task_id])


def claim_polled(message: Message, worker: Worker) -> Callable[[Services], Any]:
    """For the worker's claimWork, which may be answered None."""
    return lambda server: server.claims.claim_polled(QUEUE, message.received, worker)


def claim_work(harness: Harness) -> Scene:
    task_id = harness.create()
    return Scene(harness, claim_polled(harness.receive_one(), ALICE), [task_id])


def release_claim(harness: Harness, **changes: Any) -> Scene:
    task_id = harness.create(**changes)
    claim = claim_polled(harness.receive_one(), ALICE)(harness.services)
    return Scene(harness, lambda server: server.claims.release_claim(claim, ALICE), [task_id])


def release_claim_without_message(harness: Harness) -> Scene:
    """So near to the deadline that no message was held."""
    return release_claim(harness, deadline=format_time(harness.clock.now() + CLAIM_TIMEOUT))


def take_over(harness: Harness, retries: int, *, by_claim_work: bool = False) -> Scene:
    group = slugid()
    task_id = harness.claimed(retries=retries, taskGroupId=group)
    waiting = waiting_for(harness, task_id, requires="all-resolved")
    wait(harness, CLAIM_TIMEOUT)
    message = next(message for message in harness.receive() if message.task_id == task_id)

    def claim_task(server: Services) -> object:
        return harness.claim(message, BOB, server)

    request = claim_polled(message, BOB) if by_claim_work else claim_task
    return Scene(harness, request, [task_id, waiting], [group])


def reclaim(harness: Harness) -> Scene:
    task_id = harness.claimed()
    return Scene(harness, lambda server: server.claims.reclaim(task_id, 0), [task_id])


def report(harness: Harness, state: str, reason: str, **changes: Any) -> Scene:
    group = slugid()
    task_id = harness.claimed(taskGroupId=group, **changes)
    waiting = waiting_for(harness, task_id)
    return Scene(
        harness,
        lambda server: server.tasks.report(task_id, 0, state, reason),
        [task_id, waiting],
        [group],
    )


def cancel(harness: Harness, task_id: str) -> Scene:
    waiting = waiting_for(harness, task_id, requires="all-resolved")
    return Scene(harness, lambda server: server.tasks.cancel(task_id), [task_id, waiting], [task_id])


def rerun(harness: Harness) -> Scene:
    group = slugid()
    task_id = harness.create(taskGroupId=group)
    harness.run(task_id, "failed")
    harness.run_timers()
    swept = ("activate", "timer.put", "replace")
    return Scene(harness, lambda server: server.tasks.rerun(task_id), [task_id], [group], swept)


def create_artifact(harness: Harness, storage_type: str) -> Scene:
    """The event is published after the artifact is stored: only the same request repairs it."""
    task_id, asked_for = harness.claimed(), body(storage_type)
    return Scene(harness, lambda server: server.artifacts.create(task_id, 0, NAME, asked_for), [task_id])


def complete_artifact(harness: Harness) -> Scene:
    task_id, parts = harness.claimed(), (b"1" * 5 * 1024**2, b"2")
    requests = harness.services.artifacts.create(task_id, 0, NAME, in_parts(*parts))["requests"]
    for request, part in zip(requests, parts, strict=True):
        upload(harness, request["url"], part, "")
    etags = [etag(part) for part in parts]
    return Scene(
        harness,
        lambda server: server.artifacts.complete(task_id, 0, NAME, etags),
        [task_id],
        beside=lambda: harness.storage.artifacts.incomplete(task_id, 0, harness.clock.now()) is None,
    )


def complete_with_blob(harness: Harness) -> Scene:
    """The run is reported completed, and one of its blobs is."""
    scene = complete_artifact(harness)
    scene.request(harness.services)
    (task_id,) = scene.tasks
    return Scene(harness, lambda server: harness.complete(task_id, services=server), [task_id])


def look(server: Services) -> None:
    server.timers.tick()
    server.timers.receive()
    server.resolver.handle_all()


def claim_ends(harness: Harness, retries: int) -> Scene:
    group = slugid()
    task_id = harness.claimed(retries=retries, taskGroupId=group)
    wait(harness, CLAIM_TIMEOUT + SECOND)
    return Scene(harness, look, [task_id], [group])


def deadline_passes(harness: Harness, task_id: str) -> Scene:
    wait(harness, 24 * HOUR + SECOND)
    return Scene(harness, look, [task_id], [task_id])


def effects_of_resolution(harness: Harness) -> Scene:
    """A diamond, one side of which is completed: and then the other."""
    group = slugid()
    first, second = harness.create(taskGroupId=group), harness.create(taskGroupId=group)
    last = harness.create(dependencies=[first, second])
    harness.run(first)
    harness.run_timers()
    harness.run(second)
    harness.clock.advance(MINUTE)  # the handed over timers are not handled yet
    return Scene(harness, look, [first, second, last], [group])


def died_after(harness: Harness, scene: Scene, write: str) -> Scene:
    """The scene's request was written, and nothing else; its timer fires."""
    scene.play(FaultAt(0, of=write, after=failing(Crash())))
    harness.clock.advance(MINUTE)
    return Scene(harness, look, scene.tasks, scene.groups)


SCENES: dict[str, Maker] = {
    "create": create,
    "create waiting": create_waiting,
    "create satisfied": create_satisfied,
    "create again": lambda harness: create_again(harness, is_resolved=False),
    "create a resolved task again": lambda harness: create_again(harness, is_resolved=True),
    "create another": create_another,
    "create for another scheduler": create_for_another_scheduler,
    "define": define,
    "schedule": schedule,
    "claim": claim,
    "claim by name": lambda harness: claim(harness, BY_NAME),
    "take over": lambda harness: take_over(harness, 1),
    "take over without retries": lambda harness: take_over(harness, 0),
    "claimWork": claim_work,
    "claimWork takes over": lambda harness: take_over(harness, 1, by_claim_work=True),
    "claimWork takes over without retries": lambda harness: take_over(harness, 0, by_claim_work=True),
    "release a claim": release_claim,
    "release a claim that holds no message": release_claim_without_message,
    "reclaim": reclaim,
    "complete": lambda harness: report(harness, "completed", "completed"),
    "shut down": lambda harness: report(harness, "exception", "worker-shutdown"),
    "shut down without retries": lambda harness: report(harness, "exception", "worker-shutdown", retries=0),
    "cancel pending": lambda harness: cancel(harness, harness.create()),
    "cancel running": lambda harness: cancel(harness, harness.claimed()),
    "cancel unscheduled": lambda harness: cancel(harness, defined(harness)),
    "rerun": rerun,
    "create artifact": lambda harness: create_artifact(harness, "s3"),
    "create blob": lambda harness: create_artifact(harness, "blob"),
    "complete artifact": complete_artifact,
    "complete with a blob": complete_with_blob,
    "claim ends": lambda harness: claim_ends(harness, 1),
    "claim ends without retries": lambda harness: claim_ends(harness, 0),
    "deadline of unscheduled": lambda harness: deadline_passes(harness, defined(harness)),
    "deadline of pending": lambda harness: deadline_passes(harness, harness.create()),
    "deadline of running": lambda harness: deadline_passes(harness, harness.claimed()),
    "effects of a resolution": effects_of_resolution,
    "a create is completed by a timer": lambda harness: died_after(harness, create(harness), "insert"),
    "a waiting create is completed by a timer": lambda harness: died_after(
        harness, create_waiting(harness), "insert"
    ),
    "a schedule is completed by a timer": lambda harness: died_after(harness, schedule(harness), "replace"),
    "a claim is completed by a timer": lambda harness: died_after(harness, claim(harness), "replace"),
    "a released claim is completed by a timer": lambda harness: died_after(
        harness, release_claim(harness), "replace"
    ),
    "a rerun is completed by a timer": lambda harness: died_after(harness, rerun(harness), "replace"),
    "a completion is completed by a timer": lambda harness: died_after(
        harness, report(harness, "completed", "completed"), "replace"
    ),
}
SCENE = pytest.mark.parametrize("make", SCENES.values(), ids=SCENES)
# death before a call leaves what death after the call before it leaves
FAULTS: dict[str, Callable[[int], FaultAt]] = {
    "dies after": lambda call: FaultAt(call, after=failing(Crash())),
    "storage away": lambda call: FaultAt(call, before=failing(ServiceUnavailable("storage is away"))),
    "answer lost": lambda call: FaultAt(call, after=failing(ServiceUnavailable("the answer was lost"))),
}
FAULT = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


def made(make: Maker) -> Scene:
    harness = Harness()
    harness.run_timers()
    return make(harness)


def recorded(calls: CallRecorder, at: FaultAt, name: str, act: Callable[[], Any]) -> Any:
    return calls(name, lambda: at(name, act))


def at_every_call(make: Maker, fault: Callable[[int], FaultAt]) -> Iterator[tuple[str, Scene, bool]]:
    """The scene with the fault at its first call, at its second, and so on.

    Yields the call, the scene, and whether only the sweeper can repair it.
    """
    for call in itertools.count():
        scene, at, calls = made(make), fault(call), CallRecorder()
        server = scene.play(partial(recorded, calls, at))
        if not at.happened:
            assert call > 0
            return
        if not at.crashed:
            scene.harness.run_timers(services=server)
        name = calls.names[call]
        yield f"{call} {name}", scene, name in scene.swept


@UNCOUNTED
@SCENE
@FAULT
def test_a_fault_leaves_the_state_before_or_all_effects_of_the_request(
    make: Maker, fault: Callable[[int], FaultAt]
) -> None:
    before, events_before = made(make).outcome()
    expected = made(make)
    expected.harness.run_timers(services=expected.play())
    after, events_after = expected.outcome()
    for call, scene, sweeps in at_every_call(make, fault):
        world, events = scene.outcome(sweeps)
        assert world in (before, after), call
        if world != before:
            assert events == events_after, call
        elif world != after:
            assert events == events_before, call
        else:
            assert set(events_before) <= set(events) <= set(events_after), call


@UNCOUNTED
@SCENE
@FAULT
def test_repeating_a_request_after_a_fault_has_all_its_effects(
    make: Maker, fault: Callable[[int], FaultAt]
) -> None:
    expected = made(make)
    expected.harness.run_timers(services=expected.play())
    after, events_after = expected.outcome()
    for call, scene, sweeps in at_every_call(make, fault):
        scene.harness.run_timers(services=scene.play())
        world, events = scene.outcome(sweeps)
        assert (world, set(events)) == (after, set(events_after)), call


def calls_after_the_write(make: Maker) -> list[int]:
    """The port calls, by number, of the scene's request that come after its conditional write."""
    calls = CallRecorder()
    made(make).answer(calls)
    writes = [number for number, name in enumerate(calls.names) if name in ("insert", "replace")]
    return list(range(writes[0] + 1, len(calls.names))) if writes else []


CALLS = (
    *(
        "create",
        "create waiting",
        "create satisfied",
        "define",
        "schedule",
        "rerun",
        "claim",
        "claim by name",
    ),
    *("take over", "take over without retries", "claimWork", "claimWork takes over", "release a claim"),
    *("reclaim", "complete", "shut down", "cancel pending", "cancel running", "cancel unscheduled"),
)


@pytest.mark.parametrize("make", [SCENES[name] for name in CALLS], ids=CALLS)
@pytest.mark.parametrize("error", [ServiceUnavailable("storage is away"), ValueError("a defect")], ids=repr)
def test_a_call_succeeds_although_a_step_after_the_write_fails(make: Maker, error: Exception) -> None:
    expected = made(make).answer(call_through)
    for call in calls_after_the_write(make):
        refusal = made(make).answer(FaultAt(call, before=failing(error)))
        assert type(refusal) is type(expected), call


@UNCOUNTED
@SCENE
def test_a_repeated_request_takes_effect_once(make: Maker) -> None:
    once, twice = made(make), made(make)
    for scene, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            scene.harness.run_timers(services=scene.play())
    assert twice.outcome() == once.outcome()
