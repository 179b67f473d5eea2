"""The schemas of ``/control/v1``."""

from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.http.schema_helpers import STRING, TIME, Schema, array, enum, identifier, integer, text
from legacy_queue.http.schema_properties import PROPERTIES, WORKER, object_of, page_of

_TRUE: Schema = {"const": True}
_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]*"  # characters that tables and Azure's XML can hold
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
    "sas": enum("expired"),
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
_REQUEST = object_of(
    "sequence time requestId method path status ms",
    f"endpoint code reason clientId taskId runId taskIds {WORKER} fault",
    sequence=integer(2**53, 1),
    time=TIME,
    **dict.fromkeys(("requestId", "method", "path", "endpoint", "code", "reason", "fault"), STRING),
    status=integer(599),
    taskIds=array(PROPERTIES["taskId"]),
    ms={"type": "number", "minimum": 0},
)

CONTROL_SCHEMAS: dict[str, Schema] = {
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
    "control-tasks-response": page_of("tasks", PROPERTIES["status"]),
    "control-empty": object_of(),
    "control-new-fault": object_of("endpoint", f"{_NARROWED} {_HAPPENS}", **_OF_FAULT),
    "control-fault": _FAULT,
    "control-faults": object_of("faults", faults=array(_FAULT)),
    "control-messages": object_of("taskQueueId messages hidden", messages=array(_MESSAGE), hidden=_COUNT),
    "control-requests": object_of("requests", requests=array(_REQUEST)),
}
