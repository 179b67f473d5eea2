"""The JSON schemas of requests, answers and messages, under the names that the original queue gave them.

The schema of an object lists the names of its properties, and ``PROPERTIES`` has the schema of each. Source:
docs/explanation/http-contract.md; the original's ``schemas/`` of 2018; for the messages "Queue AMQP
Exchanges"; for links and objects those of today's services.
"""

from collections.abc import Mapping
from types import MappingProxyType

from legacy_queue.domain.artifact import MAX_UPLOAD_SIZE
from legacy_queue.domain.call_statistics import METHODS
from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.http.schema_properties import (
    ASCII,
    DEFAULTED,
    DEFINITION,
    MAX_PARTS,
    NAMED_POOL,
    POOL,
    PROPERTIES,
    REASONS,
    STRING,
    TIME,
    URL,
    WORKER,
    Schema,
    array,
    each,
    enum,
    identifier,
    integer,
    metadata,
    object_of,
    page_of,
    text,
    unique,
)
from legacy_queue.services.control.message_injection import KINDS
from legacy_queue.services.inspection.explanation import WAIT_SITUATIONS

_CLAIM = f"status runId {WORKER} takenUntil credentials"
_CLAIMED = object_of(f"{_CLAIM} task")
_TASK = object_of("status task")
_OF_WORKER = f"version status runId {WORKER}"
_TAGS = object_of("tags")
_QUARANTINE = "quarantineUntil quarantineDetails"
_DECLARED = "description stability expires"
_ACTIVE = f"{_DECLARED} lastDateActive"
_PROVISIONER = object_of(f"provisionerId {_ACTIVE}", "actions")
_TASK_QUEUE = object_of(f"taskQueueId {_ACTIVE}")
_COUNTS = object_of(f"{NAMED_POOL} pendingTasks claimedTasks")
_OF_TASK = "taskId runId task"
_SEEN = f"{WORKER} firstClaim"


def _by_storage_type(
    required: dict[str, str], optional: Mapping[str, str] = MappingProxyType({}), **own: Schema
) -> Schema:
    """Returns the schema of an object whose storageType decides which other properties it has."""
    names = dict.fromkeys(" ".join([*required.values(), *optional.values()]).split())

    def rule(storage_type: str) -> Schema:
        needed = required[storage_type].split()
        unfit = names.keys() - {*needed, *optional.get(storage_type, "").split()}
        return {
            "if": {"required": ["storageType"], "properties": {"storageType": {"const": storage_type}}},
            "then": {"required": needed, "properties": dict.fromkeys(sorted(unfit), False)},
        }

    own = {"storageType": enum(" ".join(required)), **own}
    return {
        **object_of("storageType", " ".join(names), **own),
        "allOf": [rule(storage_type) for storage_type in required],
    }


CONTENT_TYPE = text(255, "[!-~](?:[ -~]*[!-~])?")  # valid in a header

_REASONS = "file-missing-on-worker invalid-resource-on-worker too-large-file-on-worker"


def _artifact_request(reasons: str, **optional: str) -> Schema:
    return _by_storage_type(
        {
            "s3": "expires contentType",
            "azure": "expires contentType",
            "blob": "expires contentType contentLength contentSha256",
            "object": "expires contentType",
            "reference": "expires contentType url",
            "link": "expires artifact",
            "error": "expires reason message",
        },
        {
            "blob": "contentEncoding transferLength transferSha256 parts",
            "link": "contentType",
            **optional,
        },
        contentType=CONTENT_TYPE,
        artifact=text(1024, ASCII),
        parts=array(object_of("sha256 size"), minItems=1, maxItems=MAX_PARTS),
        url=text(4096, URL),
        reason=enum(reasons),
    )


_UPLOADED = "expires contentType putUrl"
_ARTIFACT_RESPONSE = _by_storage_type(
    {
        **dict.fromkeys(("s3", "azure"), _UPLOADED),
        "blob": "expires requests",
        "object": "name projectId uploadId expires credentials",
        **dict.fromkeys(("reference", "link", "error"), ""),
    },
    name=STRING,
    requests=array(object_of("method url headers", method=enum("PUT"), url=STRING)),
)
_ARTIFACT_CONTENT = _by_storage_type(
    {"s3": "url", "object": "name credentials", "reference": "url", "error": "reason message"},
    **each("url name reason", STRING),
)
_INLINE = object_of("contentType objectData", contentType=CONTENT_TYPE, objectData=text(10_926))  # 8 KiB
_TO_PUT = object_of(
    "contentType contentLength", contentType=CONTENT_TYPE, contentLength=integer(MAX_UPLOAD_SIZE)
)
_PUT_URL = object_of("url expires headers", url=STRING)
_HASHES: Schema = {
    "type": "object",
    "properties": {"sha256": text(64, "[a-z0-9]{64}"), "sha512": text(128, "[a-z0-9]{128}")},
    "additionalProperties": text(4096),  # hashes of other kinds are allowed, but not stored
    "maxProperties": 20,
}
_UPLOAD = "projectId uploadId"
_TRUE: Schema = {"const": True}
_LINE = (
    r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]*"  # only characters that tables and Azure's XML can hold
)
_COUNT: Schema = {"type": "integer", "minimum": 0}
_OF_FAULT: dict[str, Schema] = {
    "endpoint": text(100),
    "worker": identifier(f"{IDENTIFIER}/{IDENTIFIER}", 77),
    "times": integer(10**9, 1),
    "probability": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "seed": integer(2**53),
    "status": integer(599, 400),
    "message": text(4096, _LINE),
    "drop": enum("before after"),
    "sas": text(20),
    **dict.fromkeys(("double", "lose", "stale"), _TRUE),
    "delay": text(20),
}
_NARROWED = "taskId worker times probability seed"
_HAPPENS = "status message drop sas double lose stale delay"
_FAULT = object_of(
    "faultId endpoint fired",
    f"{_NARROWED} {_HAPPENS}",
    faultId=identifier("[0-9a-f]{8}", 8),
    fired=_COUNT,
    **_OF_FAULT,
)
_MESSAGE = object_of(
    "priority visibleIn dequeueCount messageId inserted",
    "taskId runId",
    visibleIn={"type": "number", "minimum": 0},
    dequeueCount=_COUNT,
)
_SEEN_MESSAGES = "messages hidden"
_OF_MESSAGES: dict[str, Schema] = {"messages": array(_MESSAGE), "hidden": _COUNT}
_FACTS = "messages messageId receipt signature reportedReason sentReason tasks claims expires isDisconnected"
_REQUEST = object_of(
    "sequence begun time requestId method path status ms",
    f"endpoint code reason clientId taskId runId taskIds taskQueueId priority {WORKER} fault {_FACTS}",
    sequence=integer(2**53, 1),
    **dict.fromkeys(("begun", "time"), TIME),
    **dict.fromkeys(("requestId", "method", "path", "endpoint", "code", "reason", "fault"), STRING),
    **each("messageId receipt signature reportedReason sentReason", STRING),
    tasks=_COUNT,
    claims=array(object_of("taskId runId takenUntil")),
    expires=TIME,
    isDisconnected=_TRUE,
    messages=array(
        object_of(
            "messageId receipt dequeueCount",
            "taskId runId signature",
            **each("messageId receipt signature", STRING),
            dequeueCount=_COUNT,
        )
    ),
    status=integer(599),
    taskIds=array(PROPERTIES["taskId"]),
    ms={"type": "number", "minimum": 0},
)
_CALLED = "method missing caller count first last"
_CALLS = array(object_of(_CALLED, method={"enum": [*METHODS]}))
_USES = array(object_of(f"{POOL} policy calls required claimWork", calls=_CALLS))
_NAMED_STATUS = {
    **PROPERTIES["status"],
    "properties": {**PROPERTIES["status"]["properties"], **object_of("name created")["properties"]},
    "required": [*PROPERTIES["status"]["required"], "name", "created"],
}
_READS = array(object_of(_CALLED, method=STRING, missing=array(STRING)))

SCHEMAS: dict[str, Schema] = {
    "ping-response": object_of("alive uptime"),
    "migration-response": object_of(
        "since until workerTypes reads", "recordedSince", workerTypes=_USES, reads=_READS
    ),
    "scope-set": object_of("scopes"),
    "purge-requests-response": object_of("requests", requests=array({"type": "object"})),
    # tasks, and messages about them
    # The pool may be given in one spelling or in both. The domain checks that they agree.
    "create-task-request": object_of(
        DEFINITION,
        f"{NAMED_POOL} projectId {DEFAULTED}",
        metadata=metadata({**PROPERTIES["owner"], "format": "email"}),
        priority={"enum": [*PRIORITIES, "normal"]},
    ),
    "create-task-request-of-today": object_of(DEFINITION, f"{NAMED_POOL} projectId {DEFAULTED}"),
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
    "list-dependent-tasks-response": page_of("tasks", _TASK, first="taskId"),
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
    # It has no run if the task was canceled, or its deadline passed, before the task had a run.
    "task-exception-message": object_of("version status", f"runId {WORKER} task", task=_TAGS),
    "task-group-resolved": object_of("version taskGroupId schedulerId"),
    "task-group-changed-message": object_of("version taskGroupId schedulerId expires sealed"),
    "task-priority-changed-message": object_of("version status oldPriority newPriority"),
    "task-group-priority-changed-message": object_of(
        "version taskGroupId schedulerId newPriority tasksAffected"
    ),
    # artifacts
    "post-artifact-request": _artifact_request(_REASONS),
    "post-artifact-request-of-today": _artifact_request(
        f"{_REASONS} file-not-readable-on-worker", s3="contentLength", object="contentLength"
    ),
    "post-artifact-response": _ARTIFACT_RESPONSE,
    "put-artifact-request": {**object_of("", "etags uploadId"), "minProperties": 1, "maxProperties": 1},
    "finish-artifact-request": object_of("uploadId"),
    "artifact-response": PROPERTIES["artifact"],
    "artifact-content-response": _ARTIFACT_CONTENT,
    "list-artifacts-response": page_of("artifacts", PROPERTIES["artifact"]),
    "artifact-created-message": object_of(f"version status runId {WORKER} artifact"),
    # objects
    "create-upload-request": object_of(
        f"{_UPLOAD} expires proposedUploadMethods",
        proposedUploadMethods=object_of("", "dataInline putUrl", dataInline=_INLINE, putUrl=_TO_PUT),
    ),
    "create-upload-response": object_of(
        f"{_UPLOAD} expires uploadMethod",
        uploadMethod=object_of("", "dataInline putUrl", dataInline={"const": True}, putUrl=_PUT_URL),
    ),
    "finish-upload-request": object_of(_UPLOAD, "hashes", hashes=_HASHES),
    "download-object-request": object_of(
        "acceptDownloadMethods",
        acceptDownloadMethods=object_of("", "simple getUrl", **each("simple getUrl", {"const": True})),
    ),
    "download-object-response": object_of(
        "method url", "expires hashes", method=enum("simple getUrl"), url=STRING, hashes=_HASHES
    ),
    "get-object-response": object_of("projectId expires hashes", hashes=_HASHES),
    # provisioners, pools and workers
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
    "workertype-response": object_of(f"{POOL} {_ACTIVE}", "taskQueueId actions"),
    "worker-response": object_of(
        f"{POOL} {_SEEN} expires recentTasks", f"taskQueueId lastDateActive {_QUARANTINE} actions"
    ),
    "update-provisioner-request": object_of("", f"{_DECLARED} actions"),
    "update-workertype-request": object_of("", _DECLARED),
    "update-worker-request": object_of("", "expires"),
    "update-worker-request-of-today": object_of("expires"),
    "quarantine-worker-request": object_of("quarantineUntil", "quarantineInfo"),
    "list-provisioners-response": page_of("provisioners", _PROVISIONER),
    "list-workertypes-response": page_of("workerTypes", object_of(f"{POOL} {_ACTIVE}", "taskQueueId")),
    "list-workers-response": page_of("workers", object_of(_SEEN, f"lastDateActive {_QUARANTINE} latestTask")),
    # /control/v1
    "control-clock": object_of(
        "now offset frozen movable",
        "reason",
        offset={"type": "number"},
        reason=STRING,
    ),
    "move-clock-request": {
        **object_of("", "advance freeze release", advance=text(20), freeze=_TRUE, release=_TRUE),
        "minProperties": 1,
        "maxProperties": 1,
    },
    "page-action": {
        **object_of(
            "action token",
            "newPriority until",
            action={"enum": ["cancel", "rerun", "schedule", "priority", "clock"]},
            token=text(64),
            until=text(30),
        ),
        "allOf": [
            {"if": {"properties": {"action": {"const": action}}}, "then": {"required": [name]}}
            for action, name in (("priority", "newPriority"), ("clock", "until"))
        ],
    },
    "control-empty": object_of(),
    "control-reset": object_of("kept", kept={"type": "boolean"}),
    "control-new-message": object_of(
        "kind", "taskId priority", kind={"enum": [*KINDS]}, priority={"enum": [*PRIORITIES]}
    ),
    "control-message": object_of("messageId"),
    "control-new-fault": object_of("endpoint", f"{_NARROWED} {_HAPPENS}", **_OF_FAULT),
    "control-fault": _FAULT,
    "control-faults": object_of("faults", faults=array(_FAULT)),
    "control-requests": object_of("now requests", requests=array(_REQUEST)),
    # /inspect/v1
    "inspect-task-response": object_of(
        "status name created now waitsFor story",
        waitsFor=array(
            object_of("situation sentence", "until", situation={"enum": [*WAIT_SITUATIONS]}, sentence=STRING)
        ),
        story=array(
            object_of(
                "time what kind",
                "runId state endpoint status priority takenUntil message hiddenUntil movedTo frozen",
                kind=enum("change request fault event clock"),
                message=enum("visible hidden held gone"),
                status=integer(599),
                frozen={"type": "boolean"},
                **each("what state endpoint", STRING),
                **each("time hiddenUntil movedTo", TIME),
            )
        ),
    ),
    "inspect-tasks-response": page_of("tasks", _NAMED_STATUS, "now"),
    "inspect-pools-response": page_of(
        "pools",
        object_of(
            f"taskQueueId policy pendingTasks claimedTasks priorities {_SEEN_MESSAGES} callers",
            "",
            priorities=array(object_of("priority pendingTasks claimedTasks", "oldest", oldest=TIME)),
            callers=array(
                object_of("caller method last recentTasks", "quarantineUntil", method={"enum": [*METHODS]})
            ),
            **_OF_MESSAGES,
        ),
        "now total",
    ),
    "inspect-messages-response": object_of(f"taskQueueId now {_SEEN_MESSAGES}", "", **_OF_MESSAGES),
}
_MESSAGES = {
    "task-group-resolved": "task-group-resolved",
    "task-group-sealed": "task-group-changed-message",
}


def message_schema(exchange: str) -> str:
    """Returns the name of the schema for messages on an exchange, such as ``task-pending``.

    Source: the exchanges.json of the original queue, where two names are exceptions.
    """
    return _MESSAGES.get(exchange, f"{exchange}-message")
