"""The JSON schemas of tasks, their claims, and the messages about them.

Source: docs/explanation/http-contract.md; for the messages "Queue AMQP Exchanges".
"""

from legacy_queue.http.schema_helpers import Schema, array, enum, integer
from legacy_queue.http.schema_properties import (
    DEFAULTED,
    DEFINITION,
    NAMED_POOL,
    PROPERTIES,
    REASONS,
    WORKER,
    object_of,
    page_of,
)

PROPERTIES["queues"] = array(object_of("signedPollUrl signedDeleteUrl"))
_CLAIM = f"status runId {WORKER} takenUntil credentials"
_CLAIMED = object_of(f"{_CLAIM} task")
_TASK = object_of("status task")
_OF_WORKER = f"version status runId {WORKER}"
_TAGS = object_of("tags")

TASK_SCHEMAS: dict[str, Schema] = {
    # the pool in either spelling or both; the domain checks which
    "create-task-request": object_of(DEFINITION, f"{NAMED_POOL} projectId {DEFAULTED}"),
    "task": PROPERTIES["task"],
    "task-status-response": object_of("status"),
    "poll-task-urls-response": object_of("queues expires"),
    "task-claim-request": object_of(WORKER, "messageId receipt signature"),
    "task-claim-response": _CLAIMED,
    "claim-work-request": object_of(WORKER, "tasks", tasks=integer(32, minimum=1, default=1)),
    "claim-work-response": object_of("tasks", tasks=array(_CLAIMED)),
    "task-reclaim-response": object_of(_CLAIM),
    "task-completed-request": object_of("", "success"),
    "task-exception-request": object_of("reason", reason=enum(f"{REASONS} resources-unavailable")),
    "list-task-group-response": page_of("tasks", _TASK, "taskGroupId", "schedulerId expires sealed"),
    "list-dependent-tasks-response": page_of("tasks", _TASK, beside="taskId"),
    "tasks-request": object_of("", "taskIds", taskIds=array(PROPERTIES["taskId"], maxItems=1000)),
    "tasks-statuses-response": page_of("statuses", object_of("taskId status")),
    "tasks-response": page_of("tasks", object_of("taskId task")),
    "task-group-response": object_of("taskGroupId expires schedulerId", "sealed"),
    "cancel-task-group-response": object_of("taskGroupId taskGroupSize cancelledCount taskIds"),
    "change-task-priority-request": object_of("newPriority"),
    "task-group-priority-change-response": object_of(
        "taskGroupId schedulerId newPriority tasksAffected taskIds"
    ),
    "task-defined-message": object_of("version status", "task", task=_TAGS),
    "task-pending-message": object_of("version status runId", "task", task=_TAGS),
    "task-running-message": object_of(f"{_OF_WORKER} takenUntil", "task", task=_TAGS),
    "task-completed-message": object_of(_OF_WORKER, "task", task=_TAGS),
    "task-failed-message": object_of(_OF_WORKER, "task", task=_TAGS),
    # without a run if the task was canceled, or its deadline passed, before it had one
    "task-exception-message": object_of("version status", f"runId {WORKER} task", task=_TAGS),
    "task-group-resolved": object_of("version taskGroupId schedulerId"),
    "task-group-changed-message": object_of("version taskGroupId schedulerId expires sealed"),
    "task-priority-changed-message": object_of("version status oldPriority newPriority"),
    "task-group-priority-changed-message": object_of(
        "version taskGroupId schedulerId newPriority tasksAffected"
    ),
}
