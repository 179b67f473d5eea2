"""What is told of a task: seeds/001 and "Events (AMQP)" in design/protocol.md."""

from typing import Any

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.events import EXCHANGES, Event, group_resolved, task_event, told_again
from legacy_queue.domain.task import Task
from tests.domain.tasks import (
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HOUR,
    MINUTE,
    NOW,
    TASK_ID,
    definition,
    pending,
    running,
)
from tests.topics import matches

GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"
OF_TASK = "provisioner.worker-Type_1.-.dSlITZ4yQgmvxxAi4A8fHQ._"


def unscheduled() -> Task:
    return transitions.create(TASK_ID, definition(dependencies=[TASK_ID]), [TASK_ID], NOW).task


def shut_down() -> Task:
    return transitions.resolve(running(), 0, "exception", "worker-shutdown", NOW + MINUTE).task


def taken_over() -> Task:
    return transitions.claim(shut_down(), 1, BOB, None, None, CLAIM_TIMEOUT, NOW + MINUTE).task


def completed() -> Task:
    return transitions.resolve(running(), 0, "completed", "completed", NOW + MINUTE).task


def rerun() -> Task:
    return transitions.rerun(completed(), NOW + HOUR).task


def test_there_are_eight_exchanges_named_by_the_project() -> None:
    assert [exchange.full_name("a-project") for exchange in EXCHANGES.values()] == [
        f"exchange/a-project/v1/{name}"
        for name in (
            "task-defined",
            "task-pending",
            "task-running",
            "artifact-created",
            "task-completed",
            "task-failed",
            "task-exception",
            "task-group-resolved",
        )
    ]


@pytest.mark.parametrize(
    ("name", "task", "words"),
    [
        ("task-defined", unscheduled(), "_._._"),
        ("task-defined", pending(), "0._._"),
        ("task-pending", pending(), "0._._"),
        ("task-running", running(), "0.group.alice"),
        ("task-completed", completed(), "0.group.alice"),
        ("task-pending", shut_down(), "1._._"),
        ("task-exception", transitions.exceed_deadline(running(), NOW + DAY).task, "0.group.alice"),
        ("task-exception", transitions.exceed_deadline(unscheduled(), NOW + DAY).task, "0._._"),
    ],
)
def test_a_routing_key_names_the_latest_run_and_its_worker(name: str, task: Task, words: str) -> None:
    assert task_event(name, task).routing_key == f"primary.{TASK_ID}.{words}.{OF_TASK}"


def test_a_routing_key_names_scheduler_and_group() -> None:
    task = pending(schedulerId="a-scheduler", taskGroupId=GROUP)
    assert task_event("task-pending", task).routing_key.endswith(f".worker-Type_1.a-scheduler.{GROUP}._")


ABOUT = {"version": 1, "runId": 0}
WORKER = {"workerGroup": "group", "workerId": "alice"}


@pytest.mark.parametrize(
    ("name", "task", "beside_the_status"),
    [
        ("task-defined", pending(), {"version": 1}),
        ("task-pending", pending(), ABOUT),
        ("task-running", running(), {**ABOUT, **WORKER, "takenUntil": "2030-01-02T03:24:05.678Z"}),
        ("task-completed", completed(), {**ABOUT, **WORKER}),
        ("task-exception", transitions.cancel(pending(), NOW).task, ABOUT),
    ],
)
def test_an_event_says_what_its_schema_has(name: str, task: Task, beside_the_status: dict[str, Any]) -> None:
    assert task_event(name, task).payload == {**beside_the_status, "status": task.status()}


def test_an_event_about_an_earlier_run_names_that_run_and_shows_the_task_as_it_is() -> None:
    event = task_event("task-running", taken_over(), 0)
    assert event.routing_key.startswith(f"primary.{TASK_ID}.0.group.alice.")
    assert (event.payload["runId"], event.payload["workerId"]) == (0, "alice")
    assert event.payload["status"] == taken_over().status()


def test_the_routes_of_a_task_go_with_each_of_its_events() -> None:
    task = pending(routes=["index.a", "b.c"])
    for name in ("task-defined", "task-pending"):
        assert task_event(name, task).routes == ("index.a", "b.c")


def test_a_group_that_is_resolved_is_told_by_its_id_and_scheduler() -> None:
    assert group_resolved(GROUP, "a-scheduler") == Event(
        "task-group-resolved",
        f"primary.{GROUP}.a-scheduler._",
        (),
        {"version": 1, "taskGroupId": GROUP, "schedulerId": "a-scheduler"},
    )


ALL = [name for name in EXCHANGES if name.startswith("task-") and name != "task-group-resolved"]
FIRST = ["task-defined", "task-pending"]


@pytest.mark.parametrize(
    ("task", "run_id", "names"),
    [
        (unscheduled(), None, ["task-defined"]),
        (unscheduled(), 0, []),
        (pending(), None, ["task-defined"]),
        (pending(), 0, FIRST),
        (pending(), 1, []),
        (running(), 0, [*FIRST, "task-running"]),
        (completed(), 0, [*FIRST, "task-running", "task-completed"]),
        (shut_down(), 0, [*FIRST, "task-running"]),
        (shut_down(), 1, FIRST),
        (taken_over(), 0, [*FIRST, "task-running"]),
        (rerun(), 0, [*FIRST, "task-running", "task-completed"]),
        (rerun(), 1, FIRST),
        (transitions.cancel(pending(), NOW).task, 0, [*FIRST, "task-exception"]),
    ],
)
def test_only_what_came_to_pass_is_told_again(task: Task, run_id: int | None, names: list[str]) -> None:
    events = told_again(task, ALL, run_id)
    assert [event.exchange for event in events] == names
    for event in events:
        assert event == task_event(event.exchange, task, run_id)


@pytest.mark.parametrize(
    ("pattern", "key", "is_matched"),
    [
        ("#", "", True),
        ("#", "a.b.c", True),
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*", "", True),
        ("*.*", "a", False),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#.c", "c", True),
        ("#.c", "a.b.c", True),
        ("#.c", "a.b.cc", False),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.c.z", True),
        ("a.*.#", "a", False),
        ("a.*.#", "a.b", True),
        ("#.b.#", "a.b.c", True),
        ("a.b*", "a.bc", False),
        ("a.+", "a.b", False),
        ("a.+", "a.+", True),
        ("a.*", "a.b\n", True),
    ],
)
def test_a_pattern_matches_as_a_topic_exchange_does(pattern: str, key: str, is_matched: bool) -> None:
    assert matches(pattern, key) is is_matched


def test_a_pattern_of_many_wildcards_takes_long() -> None:
    words = ".".join("a" * 120)
    assert not matches(".".join(["#.*"] * 60) + ".x", f"route.{words}")
    assert matches(".".join(["#.*"] * 60), f"route.{words}")
