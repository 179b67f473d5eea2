"""Endpoints for several tasks at once, for task groups, and for priorities.

Source: the reference of today's queue.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

from legacy_queue.domain.errors import InsufficientScopes
from legacy_queue.domain.priority import PRIORITIES, at_least, direction
from legacy_queue.domain.scopes import AllOf, AnyOf, ForEach
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.paging import PAGED, page_answer
from legacy_queue.http.site import Site
from legacy_queue.stores import Group

_GROUP = "/task-group/<taskGroupId>"
_OF_GROUP = "<schedulerId>/<taskGroupId>"
_DIRECTIONS = ("raise", "lower")

_experimental = partial(endpoint, "POST", stability="experimental")
_listing = partial(_experimental, query=PAGED, input="tasks-request")
_changing = partial(_experimental, input="change-task-priority-request")

_TASK_PRIORITY = AnyOf(
    (
        "queue:change-task-priority:<taskId>",
        "queue:change-task-priority-in-queue:<provisionerId>/<workerType>",
        ForEach("priority", "priorities", "queue:create-task:<priority>:<provisionerId>/<workerType>"),
        ForEach("direction", "directions", "queue:<direction>-task-priority:<taskId>"),
    )
)
_GROUP_PRIORITY = AnyOf(
    (
        ForEach("scheduler", "schedulers", "queue:change-task-group-priority:<scheduler>/<taskGroupId>"),
        ForEach("direction", "directions", "queue:<direction>-task-group-priority:<taskGroupId>"),
    )
)


def _of_each(scope: str) -> AllOf:
    return AllOf((ForEach("taskId", "taskIds", scope),))


@_listing(
    "/tasks/status",
    "Get multiple task statuses",
    scopes=_of_each("queue:status:<taskId>"),
    output="tasks-statuses-response",
)
def statuses(call: Call) -> Reply:
    """Get the statuses of up to 1,000 tasks, in the order of the taskIds. Unknown tasks are left out.

    If the page has a continuationToken, there are more statuses: repeat the call with the same body and with
    the token as a query parameter. A page may have fewer statuses than ``limit`` and still not be the last.
    """
    return _tasks(call, "statuses", lambda task: {"taskId": task.task_id, "status": task.status()})


@_listing(
    "/tasks",
    "Get multiple task definitions",
    scopes=_of_each("queue:get-task:<taskId>"),
    output="tasks-response",
)
def tasks(call: Call) -> Reply:
    """Get the definitions of up to 1,000 tasks, in pages like statuses."""
    return _tasks(call, "tasks", lambda task: {"taskId": task.task_id, "task": task.wire})


@endpoint(
    "GET",
    _GROUP,
    "Get Task Group",
    scopes="queue:list-task-group:<taskGroupId>",
    output="task-group-response",
)
def get_task_group(call: Call) -> Reply:
    """Get the schedulerId of a task group, when it expires, and, if it is sealed, since when."""
    return group_wire(call.authorize().services.groups.load(call.params["taskGroupId"]))


@_experimental(
    f"{_GROUP}/seal",
    "Seal Task Group",
    scopes=AllOf((f"queue:seal-task-group:{_OF_GROUP}",)),
    output="task-group-response",
)
def seal_task_group(call: Call) -> Reply:
    """Close a task group to new tasks: from then on createTask in this group answers 409.

    The tasks in the group stay as they are. You can repeat the call safely.
    """
    site = call.authorize(schedulerId=call.group().scheduler_id)
    return group_wire(site.services.groups.seal(call.params["taskGroupId"]))


@_experimental(
    f"{_GROUP}/cancel",
    "Cancel Task Group",
    scopes=AllOf((f"queue:cancel-task-group:{_OF_GROUP}",)),
    output="cancel-task-group-response",
)
def cancel_task_group(call: Call) -> Reply:
    """Cancel all unresolved tasks of a sealed task group, as cancelTask does.

    If the group is not sealed, the answer is 409. If the call was interrupted, repeat it: it goes on with the
    remaining tasks. The answer lists only the tasks that this call has canceled.
    """
    group_id = call.params["taskGroupId"]
    changes = call.authorize(schedulerId=call.group().scheduler_id).services.group_changes
    canceled = changes.cancel(group_id)
    return {
        **call.params,
        "taskGroupSize": changes.size(group_id),
        "cancelledCount": len(canceled),
        "taskIds": canceled,
    }


@_changing(
    "/task/<taskId>/priority", "Change Task Priority", scopes=_TASK_PRIORITY, output="task-status-response"
)
def change_task_priority(call: Call) -> Reply:
    """Change the priority of an unresolved task. If a worker has claimed it, the run goes on unchanged.

    A scope of createTask is enough if it is for the higher one of the old and the new priority, or for a
    priority above both.
    """
    queue = call.task_now().work_queue
    new = call.body["newPriority"]
    old = queue.priority
    site = call.authorize(
        provisionerId=queue.provisioner_id,
        workerType=queue.worker_type,
        priorities=at_least(min(old, new, key=PRIORITIES.index)),
        directions=[verb for verb in _DIRECTIONS if direction(old, new) in ("", verb)],
    )
    return {"status": site.services.tasks.change_priority(call.task_id, old, new).status()}


@_changing(
    f"{_GROUP}/priority",
    "Change Task Group Priority",
    scopes=_GROUP_PRIORITY,
    output="task-group-priority-change-response",
)
def change_task_group_priority(call: Call) -> Reply:
    """Change the priority of all unresolved tasks of a group, as changeTaskPriority does.

    If the client's scopes allow only raising priorities, or only lowering them, a task that needs the
    opposite stays as it is. Tasks that join the group later keep their own priority. If the call was
    interrupted, repeat it: it goes on with the remaining tasks.
    """
    site, directions = _directions(call, call.group())
    new = call.body["newPriority"]
    changes = site.services.group_changes
    group, changed = changes.change_priority(call.params["taskGroupId"], new, directions)
    return {
        **call.params,
        "schedulerId": group.scheduler_id,
        "newPriority": new,
        "tasksAffected": len(changed),
        "taskIds": changed,
    }


def _directions(call: Call, group: Group) -> tuple[Site, Collection[str]]:
    """The directions in which the caller may change priorities. Raises InsufficientScopes if none."""
    with suppress(InsufficientScopes):
        return call.authorize(schedulers=[group.scheduler_id], directions=()), _DIRECTIONS
    held = [verb for verb in _DIRECTIONS if _may(call, verb)]
    return call.authorize(schedulers=[group.scheduler_id], directions=_DIRECTIONS), held


def _may(call: Call, direction: str) -> bool:
    with suppress(InsufficientScopes):
        call.authorize(schedulers=(), directions=[direction])
        return True
    return False


def _tasks(call: Call, name: str, to_wire: Callable[[Task], Any]) -> Reply:
    task_ids = list(dict.fromkeys(call.body.get("taskIds", ())))
    site = call.authorize(taskIds=task_ids)
    ask = partial(site.services.listing.tasks, task_ids)
    return page_answer(call, name, "[0-9]{1,3}", ask, to_wire)


def group_wire(group: Group) -> dict[str, str]:
    """The group as getTaskGroup returns it."""
    sealed = {"sealed": format_time(group.sealed)} if group.sealed else {}
    return {
        "taskGroupId": group.task_group_id,
        "schedulerId": group.scheduler_id,
        "expires": format_time(group.expires),
        **sealed,
    }
