"""The JSON schemas of what is sent, answered and told, by the names that the original queue gave them.

Source: "Task definition", "Status structure" and "Bodies worth spelling out" in design/api.md; seeds/001 for
what is told on the exchanges.
"""

from legacy_queue.domain.ids import IDENTIFIER, TASK_ID
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.usage import METHODS
from legacy_queue.http.artifact_schemas import ARTIFACT, ARTIFACT_SCHEMAS
from legacy_queue.http.schema_terms import STRING as _STRING
from legacy_queue.http.schema_terms import TIME as _TIME
from legacy_queue.http.schema_terms import Schema
from legacy_queue.http.schema_terms import list_of as _list
from legacy_queue.http.schema_terms import object_of as _object
from legacy_queue.http.schema_terms import text as _text
from legacy_queue.http.worker_schemas import WORKER_SCHEMAS

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


_ID = {"type": "string", "pattern": f"^{IDENTIFIER}$", "maxLength": 22}
_TASK_ID = {"type": "string", "pattern": f"^{TASK_ID}$", "maxLength": 22}
_RUN_ID = {"type": "integer", "minimum": 0, "maximum": 1000}
_OBJECT = {"type": "object"}
_SCOPE = _text(4096, "[ -~]+")
_MOST_SCOPES = 10_000  # more than their 30 KiB of JSON hold
_MOST_TAGS = 1_000

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
    "scopes": {**_list(_SCOPE), "maxItems": _MOST_SCOPES},
    "tags": {"type": "object", "maxProperties": _MOST_TAGS, "additionalProperties": _text(4096)},
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

_COUNT = {"type": "integer", "minimum": 0}
_CALLS = {
    "method": {"enum": list(METHODS)},
    "missing": _list({"enum": ["messageId", "receipt", "signature"]}, 3),
    "caller": _STRING,
    "count": _COUNT,
    "last": _TIME,
}
_IN_THE_WAY = _list(_STRING)
_MIGRATION = _object(
    {
        "provisionerId": _ID,
        "workerType": _ID,
        "policy": {"enum": ["optional", "required"]},
        "calls": _list(_object(_CALLS)),
        "required": _object({"possible": {"type": "boolean"}, "inTheWay": _IN_THE_WAY, "refused": _COUNT}),
        "claimWork": _object(
            {"ready": {"type": "boolean"}, "inTheWay": _IN_THE_WAY, "toBeMoved": _list(_STRING)}
        ),
    }
)

_VERSION = {"enum": [1]}
_TOLD = {"version": _VERSION, "status": _STATUS}
_WORKER = {"workerGroup": _ID, "workerId": _ID}

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
    "claim-work-request": _object(
        {"workerGroup": _ID, "workerId": _ID},
        {"tasks": {"type": "integer", "minimum": 1, "maximum": 32, "default": 1}},
    ),
    "claim-work-response": _object({"tasks": _list(_object({**_CLAIM, "task": _TASK}))}),
    "task-reclaim-response": _object(_CLAIM),
    "task-completed-request": _object({}, {"success": {"type": "boolean"}}),
    "task-exception-request": _object({"reason": {"enum": list(REPORTED_REASONS)}}),
    "pending-tasks-response": _object(
        {"provisionerId": _ID, "workerType": _ID, "pendingTasks": {"type": "integer", "minimum": 0}}
    ),
    "migration-response": _object(
        {"since": _TIME, "until": _TIME, "notRecorded": _COUNT, "workerTypes": _list(_MIGRATION)},
        {"recordedSince": _TIME},
    ),
    **ARTIFACT_SCHEMAS,
    **WORKER_SCHEMAS,
    "list-task-group-response": _object({"taskGroupId": _TASK_ID, "tasks": _TASKS}, _CONTINUED),
    "list-dependent-tasks-response": _object({"taskId": _TASK_ID, "tasks": _TASKS}, _CONTINUED),
    "task-defined-message": _object(_TOLD),
    "task-pending-message": _object({**_TOLD, "runId": _RUN_ID}),
    "task-running-message": _object({**_TOLD, "runId": _RUN_ID, **_WORKER, "takenUntil": _TIME}),
    "artifact-created-message": _object({**_TOLD, "runId": _RUN_ID, **_WORKER, "artifact": ARTIFACT}),
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
