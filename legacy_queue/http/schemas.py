"""The JSON schemas of what is sent, answered and told, by the names that the original queue gave them.

Source: "Task definition", "Status structure" and "Bodies worth spelling out" in design/api.md; seeds/001 for
what is told on the exchanges.
"""

from typing import Any

from legacy_queue.domain.ids import IDENTIFIER, TASK_ID
from legacy_queue.domain.priority import PRIORITIES

Schema = dict[str, Any]

REPORTED_REASONS = (
    "worker-shutdown",
    "malformed-payload",
    "resource-unavailable",
    "resources-unavailable",  # as the seeds write it
    "internal-error",
    "superseded",
    "intermittent-task",
)


REASONS_RESOLVED = (
    "completed",
    "failed",
    "deadline-exceeded",
    "canceled",
    "superseded",
    "claim-expired",
    "worker-shutdown",
    "malformed-payload",
    "resource-unavailable",
    "internal-error",
    "intermittent-task",
)


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _text(longest: int, pattern: str | None = None, shortest: int = 0) -> Schema:
    lengths = {"type": "string", "minLength": shortest, "maxLength": longest}
    return {**lengths, "pattern": f"^(?:{pattern})$"} if pattern else lengths


def _list(items: Schema, most: int | None = None) -> Schema:
    limit = {} if most is None else {"maxItems": most, "uniqueItems": True}
    return {"type": "array", "items": items, **limit}


_ID = {"type": "string", "pattern": f"^{IDENTIFIER}$"}
_TASK_ID = {"type": "string", "pattern": f"^{TASK_ID}$"}
_TIME = {"type": "string", "format": "date-time"}
_RUN_ID = {"type": "integer", "minimum": 0, "maximum": 1000}
_STRING = {"type": "string"}
_OBJECT = {"type": "object"}
_SCOPE = _text(4096, "[ -~]+")

_METADATA = _object(
    {
        "name": _text(255),
        "description": _text(32768),
        "owner": {**_text(255), "format": "email"},
        "source": _text(4096, "https?://[!-~]+"),
    }
)
_DEFINITION = {
    "provisionerId": _ID,
    "workerType": _ID,
    "created": _TIME,
    "deadline": _TIME,
    "payload": _OBJECT,
    "metadata": _METADATA,
}
_DEFAULTED = {
    "schedulerId": _ID,
    "taskGroupId": _TASK_ID,
    "dependencies": _list(_TASK_ID, 100),
    "requires": {"enum": ["all-completed", "all-resolved"]},
    "routes": _list(_text(249, "[ -~]+"), 64),
    "priority": {"enum": [*PRIORITIES, "normal"]},
    "retries": {"type": "integer", "minimum": 0, "maximum": 49},
    "expires": _TIME,
    "scopes": _list(_SCOPE),
    "tags": {"type": "object", "additionalProperties": _text(4096)},
    "extra": _OBJECT,
}
_RUN = _object(
    {
        "runId": _RUN_ID,
        "state": {"enum": ["pending", "running", "completed", "failed", "exception"]},
        "reasonCreated": {"enum": ["scheduled", "retry", "task-retry", "rerun", "exception"]},
        "scheduled": _TIME,
    },
    {
        "reasonResolved": {"enum": list(REASONS_RESOLVED)},
        "workerGroup": _ID,
        "workerId": _ID,
        "takenUntil": _TIME,
        "started": _TIME,
        "resolved": _TIME,
    },
)
_STATUS = _object(
    {
        "taskId": _TASK_ID,
        "provisionerId": _ID,
        "workerType": _ID,
        "schedulerId": _ID,
        "taskGroupId": _TASK_ID,
        "deadline": _TIME,
        "expires": _TIME,
        "retriesLeft": {"type": "integer", "minimum": 0, "maximum": 999},
        "state": {"enum": ["unscheduled", "pending", "running", "completed", "failed", "exception"]},
        "runs": _list(_RUN),
    }
)
_TASK = _object({**_DEFINITION, **_DEFAULTED})
_CLAIM = {
    "status": _STATUS,
    "runId": _RUN_ID,
    "workerGroup": _ID,
    "workerId": _ID,
    "takenUntil": _TIME,
    "credentials": _object({"clientId": _STRING, "accessToken": _STRING, "certificate": _STRING}),
}
_TASKS = _list(_object({"status": _STATUS, "task": _TASK}))
_CONTINUED = {"continuationToken": _STRING}

_VERSION = {"enum": [1]}
_TOLD = {"version": _VERSION, "status": _STATUS}
_WORKER = {"workerGroup": _ID, "workerId": _ID}
_ARTIFACT = _object(
    {
        # the seed names blob, reference and error alone; createArtifact takes all five
        "storageType": {"enum": ["blob", "s3", "azure", "reference", "error"]},
        "name": _text(1024),
        "expires": _TIME,
        "contentType": _text(255),
    }
)

SCHEMAS: dict[str, Schema] = {
    "ping-response": _object({"alive": {"const": True}, "uptime": {"type": "number"}}),
    "create-task-request": _object(_DEFINITION, _DEFAULTED),
    "task": _TASK,
    "task-status-response": _object({"status": _STATUS}),
    "poll-task-urls-response": _object(
        {
            "queues": _list(_object({"signedPollUrl": _STRING, "signedDeleteUrl": _STRING})),
            "expires": _TIME,
        }
    ),
    "task-claim-request": _object(
        {"workerGroup": _ID, "workerId": _ID},
        {
            "messageId": _text(64, "[0-9A-Za-z-]*"),
            "receipt": _text(512, "[!-~]*"),
            "signature": _text(256),
        },
    ),
    "task-claim-response": _object({**_CLAIM, "task": _TASK}),
    "task-reclaim-response": _object(_CLAIM),
    "task-completed-request": _object({}, {"success": {"type": "boolean"}}),
    "task-exception-request": _object({"reason": {"enum": list(REPORTED_REASONS)}}),
    "pending-tasks-response": _object(
        {"provisionerId": _ID, "workerType": _ID, "pendingTasks": {"type": "integer", "minimum": 0}}
    ),
    "list-task-group-response": _object({"taskGroupId": _TASK_ID, "tasks": _TASKS}, _CONTINUED),
    "list-dependent-tasks-response": _object({"taskId": _TASK_ID, "tasks": _TASKS}, _CONTINUED),
    "task-defined-message": _object(_TOLD),
    "task-pending-message": _object({**_TOLD, "runId": _RUN_ID}),
    "task-running-message": _object({**_TOLD, "runId": _RUN_ID, **_WORKER, "takenUntil": _TIME}),
    "artifact-created-message": _object({**_TOLD, "runId": _RUN_ID, **_WORKER, "artifact": _ARTIFACT}),
    "task-completed-message": _object({**_TOLD, "runId": _RUN_ID, **_WORKER}),
    "task-failed-message": _object({**_TOLD, "runId": _RUN_ID, **_WORKER}),
    # of a task that was canceled, or met its deadline, before anybody claimed it
    "task-exception-message": _object(_TOLD, {"runId": _RUN_ID, **_WORKER}),
    "task-group-resolved": _object({"version": _VERSION, "taskGroupId": _TASK_ID, "schedulerId": _ID}),
}


def message_schema(exchange: str) -> str:
    """What the messages on an exchange, named ``task-pending`` and the like, match.

    Source: the original's exchanges.json, where one name is unlike the others.
    """
    return exchange if exchange == "task-group-resolved" else f"{exchange}-message"


def served(name: str, root_url: str) -> Schema:
    """The schema as ``/schemas/queue/v1/<name>.json`` shows it."""
    head = {
        "$id": f"{root_url}/schemas/queue/v1/{name}.json#",
        "$schema": "http://json-schema.org/draft-07/schema#",
    }
    return {**head, "title": name.replace("-", " "), **SCHEMAS[name]}
