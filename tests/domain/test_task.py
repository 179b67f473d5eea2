from dataclasses import replace

import pytest

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.task import Task
from tests.domain.sample_tasks import TASK_ID, definition, ended, pending, running

UNSCHEDULED = Task(TASK_ID, definition(), 5)


@pytest.mark.parametrize(
    ("reasons", "ends", "activations"),
    [
        (("scheduled", "retry"), [False, True], [0, 0]),
        (("scheduled", "retry", "rerun", "task-retry"), [False, True, False, True], [0, 0, 2, 2]),
        (("scheduled", "rerun", "rerun"), [True, True, True], [0, 1, 2]),
    ],
)
def test_a_task_was_resolved_by_its_last_run_and_by_each_run_before_a_rerun(
    reasons: tuple[str, ...], ends: list[bool], activations: list[int]
) -> None:
    done = ended().runs[0]
    runs = tuple(replace(done, run_id=i, reason_created=reason) for i, reason in enumerate(reasons))
    task = replace(running(), runs=runs)
    assert [task.ended_with(run_id) for run_id in range(len(runs))] == ends
    assert [task.activation(run_id) for run_id in range(len(runs))] == activations
    assert task.up_to(0).runs == runs[:1]


def test_an_unresolved_or_missing_run_does_not_resolve_a_task() -> None:
    assert not running().ended_with(0)
    assert not UNSCHEDULED.ended_with(0)
    assert UNSCHEDULED.activation(-1) == 0
    assert not UNSCHEDULED.is_resolved
    with pytest.raises(ResourceNotFound, match=r"no run 1: its runs are 0\.\.0"):
        pending().run(1)
    with pytest.raises(ResourceNotFound, match="no run 0: it has no runs yet"):
        UNSCHEDULED.run(0)
