"""The scopes of changed priorities: as a client of today's queue sees them."""

import pytest

from tests.http.calls import GROUP_ID, POOL, TASK_ID, TESTED, Queue, holding

QUEUE = "/".join(POOL.values())


def member(queue: Queue, priority: str) -> str:
    return queue.create(taskGroupId=GROUP_ID, schedulerId="a-scheduler", priority=priority)


@pytest.mark.parametrize(
    ("scope", "raised", "lowered"),
    [
        (f"queue:raise-task-priority:{TASK_ID}", 200, 403),
        (f"queue:lower-task-priority:{TASK_ID}", 403, 200),
        (f"queue:create-task:high:{QUEUE}", 200, 200),
        (f"queue:create-task:medium:{QUEUE}", 403, 200),
        (f"queue:create-task:low:{QUEUE}", 403, 403),  # it has no right to the task as it is
    ],
)
def test_a_scope_allows_to_raise_or_to_lower_a_priority(scope: str, raised: int, lowered: int) -> None:
    for new, status in (("high", raised), ("low", lowered)):
        queue = holding(scope)
        queue.create(TASK_ID, priority="medium")
        answer = queue.call("changeTaskPriority", {"newPriority": new}, TESTED, taskId=TASK_ID)
        assert answer.status_code == status


def test_only_the_tasks_whose_change_the_scopes_allow_are_changed() -> None:
    may_raise, may_lower = (f"queue:{verb}-task-group-priority:{GROUP_ID}" for verb in ("raise", "lower"))
    new = {"newPriority": "medium"}
    queue = holding(may_raise)
    low, high = member(queue, "low"), member(queue, "high")
    assert queue.ask("changeTaskGroupPriority", new, TESTED, taskGroupId=GROUP_ID) == {
        "taskGroupId": GROUP_ID,
        "schedulerId": "a-scheduler",
        "newPriority": "medium",
        "tasksAffected": 1,
        "taskIds": [low],
    }
    assert queue.definition(high)["priority"] == "high"
    both = holding(may_raise, may_lower)
    members = [member(both, "low"), member(both, "high")]
    changed = both.ask("changeTaskGroupPriority", new, TESTED, taskGroupId=GROUP_ID)
    assert changed["tasksAffected"] == len(members)
