"""The schema of each property. A property has the same schema wherever it occurs.

All lengths are limited, so that every valid value fits into a row of the table storage.
"""

from typing import Any

from legacy_queue.domain.formats_of_2018 import MAX_DEPENDENCIES
from legacy_queue.domain.ids import IDENTIFIER, PROJECT_ID, TASK_ID, TASK_QUEUE_ID
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.worker_record import ACTION_CONTEXTS, STABILITIES

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time", "maxLength": 64}


def text(max_length: int, pattern: str | None = None) -> Schema:
    """Returns the schema of a text of at most ``max_length`` characters, all of which match the pattern."""
    lengths = {"type": "string", "minLength": 0, "maxLength": max_length}
    return {**lengths, "pattern": f"^(?:{pattern})$"} if pattern else lengths


def identifier(pattern: str, max_length: int) -> Schema:
    return {"type": "string", "pattern": f"^{pattern}$", "maxLength": max_length}


def enum(values: str) -> Schema:
    return {"enum": values.split()}


def integer(maximum: int, minimum: int = 0, **more: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def array(items: Schema, **limits: Any) -> Schema:
    return {"type": "array", "items": items, **limits}


def unique(items: Schema, max_items: int) -> Schema:
    return array(items, maxItems=max_items, uniqueItems=True)


def each(names: str, schema: Schema) -> dict[str, Schema]:
    return dict.fromkeys(names.split(), schema)


REASONS = "worker-shutdown malformed-payload resource-unavailable internal-error superseded intermittent-task"
MAX_PARTS = 10_000  # of one blob
URL = "https?://[!-~]+"
ASCII = "[ -~]+"
SHA256 = "[0-9a-fA-F]{64}"
SOURCE = "(?:(?:https?|ssh)://|git@)[!-~]+"
RUN_STATES = "pending running completed failed exception"
POOL = "provisionerId workerType"
NAMED_POOL = f"{POOL} taskQueueId"
WORKER = "workerGroup workerId"

PROPERTIES: dict[str, Schema] = {
    **each(f"{POOL} {WORKER} schedulerId", identifier(IDENTIFIER, 38)),
    "taskQueueId": identifier(TASK_QUEUE_ID, 77),
    "projectId": identifier(PROJECT_ID, 500),
    **each("taskId taskGroupId", identifier(TASK_ID, 22)),
    **each(
        "created deadline expires scheduled started resolved takenUntil sealed inserted claimed now", TIME
    ),
    **each("firstClaim lastDateActive quarantineUntil updatedAt since until recordedSince first last", TIME),
    **each("continuationToken clientId accessToken certificate caller putUrl", STRING),
    **each("signedPollUrl signedDeleteUrl", STRING),
    **each(
        "count total refused pendingTasks claimedTasks taskGroupSize cancelledCount tasksAffected",
        {"type": "integer", "minimum": 0},
    ),
    **each("success possible ready frozen movable", {"type": "boolean"}),
    **each("payload extra", {"type": "object"}),
    **each("blockers inTheWay toBeMoved", array(STRING)),
    **each("size contentLength transferLength", integer(2**53)),
    **each("sha256 contentSha256 transferSha256", text(64, SHA256)),
    "version": {"enum": [1]},
    "alive": {"const": True},
    "uptime": {"type": "number"},
    "name": text(255),
    # of tasks
    "owner": text(255),
    "source": text(4096, SOURCE),
    "dependencies": unique(identifier(TASK_ID, 22), MAX_DEPENDENCIES),
    "requires": enum("all-completed all-resolved"),
    "routes": unique(text(249, ASCII), 64),
    **each("priority oldPriority newPriority", {"enum": [*PRIORITIES]}),
    "taskIds": {"type": "array", "items": identifier(TASK_ID, 22), "uniqueItems": True},
    "retries": integer(49),
    "scopes": array(text(4096, ASCII), maxItems=10_000),  # more do not fit into 30 KiB of JSON
    "tags": {"type": "object", "maxProperties": 1_000, "additionalProperties": text(4096)},
    # of runs and claims
    "runId": integer(1000),
    "reasonCreated": enum("scheduled retry task-retry rerun exception"),
    "reasonResolved": enum(f"completed failed deadline-exceeded canceled claim-expired {REASONS}"),
    "retriesLeft": integer(999),
    "messageId": text(64, "[0-9A-Za-z-]*"),
    "receipt": text(512, "[!-~]*"),
    "signature": text(256),
    # of artifacts
    "storageType": enum("s3 azure blob object reference link error"),
    "contentType": text(255),
    "contentEncoding": text(255, "[!#$%&'*+.^_`|~0-9A-Za-z-]+"),
    "uploadId": identifier(TASK_ID, 22),
    "message": text(4096),
    "etags": array(text(256), maxItems=MAX_PARTS),
    "headers": {"type": "object", "additionalProperties": STRING},
    # of provisioners and pools
    "stability": {"enum": [*STABILITIES]},
    "context": {"enum": [*ACTION_CONTEXTS.values()]},
    "title": text(255),
    "description": text(16_384),
    "quarantineInfo": text(4096),
    # of the migration report
    "policy": enum("optional required"),
    "missing": unique(enum("messageId receipt signature"), 3),
}


def object_of(required: str = "", optional: str = "", **own: Schema) -> Schema:
    """Returns the schema of an object with these properties and no others.

    ``own`` has the schemas of properties that differ from ``PROPERTIES`` in this object.
    """
    names = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "properties": {name: own.get(name) or PROPERTIES[name] for name in names},
        "required": required.split(),
        "additionalProperties": False,
    }


def page_of(name: str, item: Schema, first: str = "", optional: str = "") -> Schema:
    return object_of(f"{first} {name}", f"{optional} continuationToken", **{name: array(item)})


DEFINITION = "created deadline payload metadata"
DEFAULTED = "schedulerId taskGroupId dependencies requires routes priority retries expires scopes tags extra"


def metadata(owner: Schema) -> Schema:
    return object_of("name description owner source", owner=owner, description=text(32_768))


PROPERTIES["metadata"] = metadata(PROPERTIES["owner"])
PROPERTIES["task"] = object_of(f"{POOL} {DEFINITION} {DEFAULTED}", "taskQueueId projectId")
_RESOLVED = f"reasonResolved {WORKER} takenUntil started resolved"
_RUN = object_of("runId state reasonCreated scheduled", _RESOLVED, state=enum(RUN_STATES))
PROPERTIES["status"] = object_of(
    f"taskId {POOL} schedulerId taskGroupId deadline expires retriesLeft state runs",
    "taskQueueId projectId priority",  # since 2018
    state=enum(f"unscheduled {RUN_STATES}"),
    runs=array(_RUN),
)
PROPERTIES["credentials"] = object_of("clientId accessToken certificate")
PROPERTIES["queues"] = array(object_of("signedPollUrl signedDeleteUrl"))
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
PROPERTIES["artifact"] = object_of("storageType name expires contentType", "contentLength", name=text(1024))
PROPERTIES["required"] = object_of("possible blockers inTheWay refused")
PROPERTIES["claimWork"] = object_of("ready blockers inTheWay toBeMoved")
