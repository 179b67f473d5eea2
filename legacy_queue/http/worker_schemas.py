"""The JSON schemas of provisioners, worker types and workers. Source: the original's ``schemas/`` of 2018."""

from legacy_queue.http.schema_helpers import Schema, array, enum, text, unique
from legacy_queue.http.schema_properties import NAMED_POOL, POOL, PROPERTIES, WORKER, object_of, page_of

_ACTION = object_of(
    "name title context url method description",
    url=text(4096, "[!-~]+"),  # not a strict URL: it contains <provisionerId> and the like
    method=enum("POST PUT DELETE PATCH"),
    description=text(1024),
)
PROPERTIES["actions"] = unique(_ACTION, 32)
PROPERTIES["latestTask"] = object_of("taskId runId")
PROPERTIES["recentTasks"] = array(PROPERTIES["latestTask"])
PROPERTIES["quarantineDetails"] = array(object_of("updatedAt clientId quarantineUntil quarantineInfo"))
_QUARANTINE = "quarantineUntil quarantineDetails"
_DECLARED = "description stability expires"
_ACTIVE = f"{_DECLARED} lastDateActive"
_PROVISIONER = object_of(f"provisionerId {_ACTIVE} actions")
_TASK_QUEUE = object_of(f"taskQueueId {_ACTIVE}")
_COUNTS = object_of(f"{NAMED_POOL} pendingTasks claimedTasks")
_OF_TASK = "taskId runId task"
_SEEN = f"{WORKER} firstClaim"

WORKER_SCHEMAS: dict[str, Schema] = {
    "pending-tasks-response": object_of(f"{POOL} pendingTasks", "taskQueueId"),
    "task-queue-counts-response": _COUNTS,
    "task-queue-counts-request": object_of(
        "taskQueueIds", taskQueueIds=unique(PROPERTIES["taskQueueId"], 1000)
    ),
    "task-queue-counts-list-response": object_of("taskQueueCounts", taskQueueCounts=array(_COUNTS)),
    "list-pending-tasks-response": page_of("tasks", object_of(f"{_OF_TASK} inserted")),
    "list-claimed-tasks-response": page_of("tasks", object_of(f"{_OF_TASK} {WORKER} claimed")),
    "taskqueue-response": _TASK_QUEUE,
    "list-taskqueues-response": page_of("taskQueues", _TASK_QUEUE),
    "provisioner-response": _PROVISIONER,
    "workertype-response": object_of(f"{POOL} {_ACTIVE} actions", "taskQueueId"),
    "worker-response": object_of(
        f"{POOL} {_SEEN} expires recentTasks actions", f"taskQueueId lastDateActive {_QUARANTINE}"
    ),
    "update-provisioner-request": object_of("", f"{_DECLARED} actions"),
    "update-workertype-request": object_of("", _DECLARED),
    "update-worker-request": object_of("", "expires"),
    "quarantine-worker-request": object_of("quarantineUntil", "quarantineInfo"),
    "list-provisioners-response": page_of("provisioners", _PROVISIONER),
    "list-workertypes-response": page_of("workerTypes", object_of(f"{POOL} {_ACTIVE}", "taskQueueId")),
    "list-workers-response": page_of("workers", object_of(_SEEN, f"lastDateActive {_QUARANTINE} latestTask")),
}
