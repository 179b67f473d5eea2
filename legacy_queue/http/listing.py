"""Endpoints that list tasks, a page at a time. Source: "Methods" in design/api.md."""

from flask import Response

from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.task import Task
from legacy_queue.http.endpoint import Call, endpoint
from legacy_queue.http.paging import PAGED, after, limit, page_answer, render


@endpoint(
    "listTaskGroup",
    "GET",
    "/task-group/<taskGroupId>/list",
    "List Task Group",
    query=PAGED,
    output="list-task-group-response",
)
def list_task_group(call: Call) -> Response:
    """The tasks of a group, up to ``limit`` at a time; a page may hold fewer and not be the last: it has
    about 4 MiB of JSON at most.

    Where more follow there is a continuationToken, which as a query parameter gives the next page. A
    task that joins meanwhile makes no other task be listed twice or not at all.
    """
    group_id, services = call.params["taskGroupId"], call.authorize()
    begin = after(call, group_id, TASK_ID)
    return page_answer(
        call,
        services,
        group_id,
        "tasks",
        lambda: services.listing.group(group_id, begin, limit(call), _listed),
        beside={"taskGroupId": group_id},
    )


@endpoint(
    "listDependentTasks",
    "GET",
    "/task/<taskId>/dependents",
    "List Dependent Tasks",
    query=PAGED,
    output="list-dependent-tasks-response",
)
def list_dependent_tasks(call: Call) -> Response:
    """The tasks that depend on a task, in pages as those of listTaskGroup."""
    services, begin = call.authorize(), after(call, call.task_id, TASK_ID)
    return page_answer(
        call,
        services,
        call.task_id,
        "tasks",
        lambda: services.listing.dependents(call.task_id, begin, limit(call), _listed),
        beside={"taskId": call.task_id},
    )


def _listed(task: Task) -> bytes:
    return render({"status": task.status(), "task": task.definition.wire})


ENDPOINTS = (list_task_group, list_dependent_tasks)
