"""The JSON schemas of requests, answers and messages, by the names that the original queue gave them.

A property has the same schema wherever it occurs, so an object lists the names of its properties, and
``_PROPERTIES`` says what each may be. Lengths are limited so that what is accepted fits an entity.
Source: "Task definition", "Status structure" and "Bodies worth spelling out" in design/api.md; seeds/001 for
messages; the original's ``schemas/`` of 2018 for artifacts and workers.
"""

from typing import Any

from legacy_queue.domain.ids import IDENTIFIER, TASK_ID
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.usage import METHODS
from legacy_queue.domain.workers import ACTION_CONTEXTS, STABILITIES

Schema = dict[str, Any]

_REASONS = (
    "worker-shutdown malformed-payload resource-unavailable internal-error superseded intermittent-task"
)
_MAX_PARTS = 10_000  # of a blob


def _text(max_length: int, pattern: str | None = None) -> Schema:
    """Text of so many characters, all of which the pattern matches."""
    lengths = {"type": "string", "minLength": 0, "maxLength": max_length}
    return {**lengths, "pattern": f"^(?:{pattern})$"} if pattern else lengths


def _id(pattern: str) -> Schema:
    return {"type": "string", "pattern": f"^{pattern}$", "maxLength": 22}


def _enum(values: str) -> Schema:
    return {"enum": values.split()}


def _integer(maximum: int, minimum: int = 0, **more: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def _list(items: Schema, **limits: Any) -> Schema:
    return {"type": "array", "items": items, **limits}


def _set(items: Schema, max_items: int) -> Schema:
    return _list(items, maxItems=max_items, uniqueItems=True)


def _each(names: str, schema: Schema) -> dict[str, Schema]:
    return dict.fromkeys(names.split(), schema)


def _object(required: str = "", optional: str = "", **own: Schema) -> Schema:
    """An object of these properties and no others; ``own`` are schemas that only this object has."""
    names = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "properties": {name: own.get(name) or _PROPERTIES[name] for name in names},
        "required": required.split(),
        "additionalProperties": False,
    }


_STRING: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time", "maxLength": 64}
_URL = "https?://[!-~]+"
_RUN_STATES = "pending running completed failed exception"
_POOL = "provisionerId workerType"
_WORKER = "workerGroup workerId"

_PROPERTIES: dict[str, Schema] = {
    **_each(f"{_POOL} {_WORKER} schedulerId", _id(IDENTIFIER)),
    **_each("taskId taskGroupId", _id(TASK_ID)),
    **_each("created deadline expires scheduled started resolved takenUntil", _TIME),
    **_each("firstClaim lastDateActive quarantineUntil since until recordedSince last", _TIME),
    **_each("continuationToken clientId accessToken certificate caller putUrl", _STRING),
    **_each("signedPollUrl signedDeleteUrl", _STRING),
    **_each("count notRecorded refused pendingTasks", {"type": "integer", "minimum": 0}),
    **_each("success possible ready", {"type": "boolean"}),
    **_each("payload extra", {"type": "object"}),
    **_each("inTheWay toBeMoved", _list(_STRING)),
    **_each("size contentLength transferLength", _integer(2**53)),
    **_each("sha256 contentSha256 transferSha256", _text(64, "[0-9a-fA-F]{64}")),
    "version": {"enum": [1]},
    "alive": {"const": True},
    "uptime": {"type": "number"},
    "name": _text(255),
    # of tasks
    "owner": {**_text(255), "format": "email"},
    "source": _text(4096, _URL),
    "dependencies": _set(_id(TASK_ID), 100),
    "requires": _enum("all-completed all-resolved"),
    "routes": _set(_text(249, "[ -~]+"), 64),
    "priority": {"enum": [*PRIORITIES, "normal"]},
    "retries": _integer(49),
    "scopes": _list(_text(4096, "[ -~]+"), maxItems=10_000),  # more than their 30 KiB of JSON hold
    "tags": {"type": "object", "maxProperties": 1_000, "additionalProperties": _text(4096)},
    # of runs and claims
    "runId": _integer(1000),
    "reasonCreated": _enum("scheduled retry task-retry rerun exception"),
    "reasonResolved": _enum(f"completed failed deadline-exceeded canceled claim-expired {_REASONS}"),
    "retriesLeft": _integer(999),
    "messageId": _text(64, "[0-9A-Za-z-]*"),
    "receipt": _text(512, "[!-~]*"),
    "signature": _text(256),
    # of artifacts
    "storageType": _enum("s3 azure blob reference error"),
    "contentType": _text(255),
    "contentEncoding": _text(255, "[!#$%&'*+.^_`|~0-9A-Za-z-]+"),
    "message": _text(4096),
    "etags": _list(_text(256), maxItems=_MAX_PARTS),
    "headers": {"type": "object", "additionalProperties": _STRING},
    # of provisioners and worker types
    "stability": {"enum": [*STABILITIES]},
    "context": {"enum": [*ACTION_CONTEXTS]},
    "title": _text(255),
    "description": _text(16_384),
    # of the protocols in use
    "policy": _enum("optional required"),
    "missing": _set(_enum("messageId receipt signature"), 3),
}

_DEFINITION = f"{_POOL} created deadline payload metadata"
_DEFAULTED = "schedulerId taskGroupId dependencies requires routes priority retries expires scopes tags extra"
_PROPERTIES["metadata"] = _object("name description owner source", description=_text(32_768))
_PROPERTIES["task"] = _object(f"{_DEFINITION} {_DEFAULTED}")
_RESOLVED = f"reasonResolved {_WORKER} takenUntil started resolved"
_RUN = _object("runId state reasonCreated scheduled", _RESOLVED, state=_enum(_RUN_STATES))
_PROPERTIES["status"] = _object(
    f"taskId {_POOL} schedulerId taskGroupId deadline expires retriesLeft state runs",
    state=_enum(f"unscheduled {_RUN_STATES}"),
    runs=_list(_RUN),
)
_PROPERTIES["credentials"] = _object("clientId accessToken certificate")
_CLAIM = f"status runId {_WORKER} takenUntil credentials"
_CLAIMED = _object(f"{_CLAIM} task")
_TASK = _object("status task")

_ACTION = _object(
    "name title context url method description",
    url=_text(4096, "[!-~]+"),  # no more than that: it holds <provisionerId> and the like
    method=_enum("POST PUT DELETE PATCH"),
    description=_text(1024),
)
_PROPERTIES["actions"] = _set(_ACTION, 32)
_PROPERTIES["latestTask"] = _object("taskId runId")
_PROPERTIES["recentTasks"] = _list(_PROPERTIES["latestTask"])
_DECLARED = "description stability expires"
_ACTIVE = f"{_DECLARED} lastDateActive"
_PROVISIONER = _object(f"provisionerId {_ACTIVE} actions")
_SEEN = f"{_WORKER} firstClaim lastDateActive"

_PROPERTIES["artifact"] = _object("storageType name expires contentType", name=_text(1024))
_PROPERTIES["queues"] = _list(_object("signedPollUrl signedDeleteUrl"))

_PROPERTIES["required"] = _object("possible inTheWay refused")
_PROPERTIES["claimWork"] = _object("ready inTheWay toBeMoved")
_CALLS = _object("method missing caller count last", method={"enum": [*METHODS]})
_USES = _list(_object(f"{_POOL} policy calls required claimWork", calls=_list(_CALLS)))


def _page(name: str, item: Schema, beside: str = "") -> Schema:
    return _object(f"{beside} {name}", "continuationToken", **{name: _list(item)})


def _by_storage_type(required: dict[str, str], of_blob: str = "", **own: Schema) -> Schema:
    """An object whose storageType decides which other properties it has; ``of_blob`` are optional."""
    names = dict.fromkeys(" ".join([*required.values(), of_blob]).split())

    def rule(storage_type: str) -> Schema:
        needed = required[storage_type].split()
        unfit = names.keys() - {*needed, *(of_blob.split() if storage_type == "blob" else ())}
        return {
            "if": {"required": ["storageType"], "properties": {"storageType": {"const": storage_type}}},
            "then": {"required": needed, "properties": dict.fromkeys(sorted(unfit), False)},
        }

    return {**_object("storageType", " ".join(names), **own), "allOf": [rule(one) for one in required]}


_ARTIFACT_REQUEST = _by_storage_type(
    {
        "s3": "expires contentType",
        "azure": "expires contentType",
        "blob": "expires contentType contentLength contentSha256",
        "reference": "expires contentType url",
        "error": "expires reason message",
    },
    of_blob="contentEncoding transferLength transferSha256 parts",
    contentType=_text(255, "[!-~](?:[ -~]*[!-~])?"),  # fit for a header
    parts=_list(_object("sha256 size"), minItems=1, maxItems=_MAX_PARTS),
    url=_text(4096, _URL),
    reason=_enum("file-missing-on-worker invalid-resource-on-worker too-large-file-on-worker"),
)
_UPLOADED = "expires contentType putUrl"
_ARTIFACT_RESPONSE = _by_storage_type(
    {"s3": _UPLOADED, "azure": _UPLOADED, "blob": "expires requests", "reference": "", "error": ""},
    requests=_list(_object("method url headers", method=_enum("PUT"), url=_STRING)),
)

_OF_WORKER = f"version status runId {_WORKER}"
SCHEMAS: dict[str, Schema] = {
    "ping-response": _object("alive uptime"),
    "create-task-request": _object(_DEFINITION, _DEFAULTED),
    "task": _PROPERTIES["task"],
    "task-status-response": _object("status"),
    "poll-task-urls-response": _object("queues expires"),
    "task-claim-request": _object(_WORKER, "messageId receipt signature"),
    "task-claim-response": _CLAIMED,
    "claim-work-request": _object(_WORKER, "tasks", tasks=_integer(32, minimum=1, default=1)),
    "claim-work-response": _object("tasks", tasks=_list(_CLAIMED)),
    "task-reclaim-response": _object(_CLAIM),
    "task-completed-request": _object("", "success"),
    "task-exception-request": _object("reason", reason=_enum(f"{_REASONS} resources-unavailable")),
    "pending-tasks-response": _object(f"{_POOL} pendingTasks"),
    "migration-response": _object("since until notRecorded workerTypes", "recordedSince", workerTypes=_USES),
    "scope-set": _object("scopes"),
    "purge-requests-response": _object("requests", requests=_list({"type": "object"})),
    "post-artifact-request": _ARTIFACT_REQUEST,
    "post-artifact-response": _ARTIFACT_RESPONSE,
    "put-artifact-request": _object("etags"),
    "list-artifacts-response": _page("artifacts", _PROPERTIES["artifact"]),
    "provisioner-response": _PROVISIONER,
    "workertype-response": _object(f"{_POOL} {_ACTIVE} actions"),
    "worker-response": _object(f"{_POOL} {_SEEN} expires recentTasks actions", "quarantineUntil"),
    "update-provisioner-request": _object("", f"{_DECLARED} actions"),
    "update-workertype-request": _object("", _DECLARED),
    "update-worker-request": _object("", "expires"),
    "quarantine-worker-request": _object("quarantineUntil"),
    "list-provisioners-response": _page("provisioners", _PROVISIONER),
    "list-workertypes-response": _page("workerTypes", _object(f"{_POOL} {_ACTIVE}")),
    "list-workers-response": _page("workers", _object(_SEEN, "quarantineUntil latestTask")),
    "list-task-group-response": _page("tasks", _TASK, beside="taskGroupId"),
    "list-dependent-tasks-response": _page("tasks", _TASK, beside="taskId"),
    "task-defined-message": _object("version status"),
    "task-pending-message": _object("version status runId"),
    "task-running-message": _object(f"{_OF_WORKER} takenUntil"),
    "artifact-created-message": _object(f"{_OF_WORKER} artifact"),
    "task-completed-message": _object(_OF_WORKER),
    "task-failed-message": _object(_OF_WORKER),
    # of a task that was canceled, or met its deadline, before it was claimed
    "task-exception-message": _object("version status", f"runId {_WORKER}"),
    "task-group-resolved": _object("version taskGroupId schedulerId"),
}


def message_schema(exchange: str) -> str:
    """The schema of the messages on an exchange, which is named ``task-pending`` and the like.

    Source: the original's exchanges.json, where one name is unlike the others.
    """
    return exchange if exchange == "task-group-resolved" else f"{exchange}-message"
