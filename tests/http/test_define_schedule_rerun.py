"""defineTask, scheduleTask and rerunTask, as a scheduler of 2016 calls them."""

from tests.http.calls import ROOT, TASK_ID, Queue, refused

OTHER_ID = "OtherAAAQ3GP5tDKTRPnTA"


def test_a_defined_task_shows_that_it_depends_on_itself(queue: Queue) -> None:
    queue.create(OTHER_ID)
    queue.define(TASK_ID, dependencies=[OTHER_ID])
    assert set(queue.definition(TASK_ID)["dependencies"]) == {OTHER_ID, TASK_ID}


def test_the_scopes_name_the_group_of_the_stored_task(queue: Queue) -> None:
    queue.canceled(TASK_ID, schedulerId="s", taskGroupId=OTHER_ID)
    for name in ("scheduleTask", "rerunTask", "cancelTask"):
        answer = queue.call(name, None, ROOT.narrowed(), taskId=TASK_ID)
        verb = name.removesuffix("Task")
        refused(answer, 403, "InsufficientScopes", f"`queue:{verb}-task:s/{OTHER_ID}/{TASK_ID}`")
