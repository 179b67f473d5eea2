"""Endpoints that list tasks, a page at a time. Source: "Methods" in design/api.md."""

from collections.abc import Mapping
from typing import Any

from legacy_queue.domain.ids import TASK_ID
from legacy_queue.http.endpoint import Call, endpoint
from legacy_queue.http.paging import PAGED, after, continued, limit
from legacy_queue.services.listing import Listed


@endpoint(
    "listTaskGroup",
    "GET",
    "/task-group/<taskGroupId>/list",
    "List Task Group",
    query=PAGED,
    output="list-task-group-response",
)
def list_task_group(call: Call) -> Mapping[str, Any]:
    """The tasks of a group, up to ``limit`` at a time; a page may hold fewer and not be the last.

    Where there may be more there is a continuationToken, which as a query parameter gives the next page. A
    task that joins meanwhile makes no other task be listed twice or not at all.
    """
    task_group_id = call.params["taskGroupId"]
    listed = call.authorize().listing.group(task_group_id, after(call, task_group_id, TASK_ID), limit(call))
    return {"taskGroupId": task_group_id, **_page(call, task_group_id, listed)}


@endpoint(
    "listDependentTasks",
    "GET",
    "/task/<taskId>/dependents",
    "List Dependent Tasks",
    query=PAGED,
    output="list-dependent-tasks-response",
)
def list_dependent_tasks(call: Call) -> Mapping[str, Any]:
    """The tasks that depend on a task, in pages as those of listTaskGroup."""
    listed = call.authorize().listing.dependents(
        call.task_id, after(call, call.task_id, TASK_ID), limit(call)
    )
    return {"taskId": call.task_id, **_page(call, call.task_id, listed)}


def _page(call: Call, list_id: str, listed: Listed) -> dict[str, Any]:
    tasks = [{"status": task.status(), "task": task.definition.wire} for task in listed.tasks]
    return {"tasks": tasks, **continued(call, list_id, listed.after)}


ENDPOINTS = (list_task_group, list_dependent_tasks)
