"""The JSON schemas of requests, answers and messages, by the names that the original queue gave them.

An object lists the names of its properties; ``PROPERTIES`` has the schema of each.
"""

from legacy_queue.domain.usage_key import METHODS
from legacy_queue.http.artifact_schemas import ARTIFACT_SCHEMAS
from legacy_queue.http.control_schemas import CONTROL_SCHEMAS
from legacy_queue.http.object_schemas import OBJECT_SCHEMAS
from legacy_queue.http.schema_helpers import Schema, array
from legacy_queue.http.schema_properties import POOL, PROPERTIES, object_of
from legacy_queue.http.task_schemas import TASK_SCHEMAS
from legacy_queue.http.worker_schemas import WORKER_SCHEMAS

PROPERTIES["required"] = object_of("possible inTheWay refused")
PROPERTIES["claimWork"] = object_of("ready inTheWay toBeMoved")
_CALLS = object_of("method missing caller count first last", method={"enum": [*METHODS]})
_USES = array(object_of(f"{POOL} policy calls required claimWork", calls=array(_CALLS)))

SCHEMAS: dict[str, Schema] = {
    "ping-response": object_of("alive uptime"),
    "migration-response": object_of(
        "since until notRecorded workerTypes", "recordedSince", workerTypes=_USES
    ),
    "scope-set": object_of("scopes"),
    "purge-requests-response": object_of("requests", requests=array({"type": "object"})),
    **TASK_SCHEMAS,
    **ARTIFACT_SCHEMAS,
    **OBJECT_SCHEMAS,
    **WORKER_SCHEMAS,
    **CONTROL_SCHEMAS,
}
_MESSAGES = {
    "task-group-resolved": "task-group-resolved",
    "task-group-sealed": "task-group-changed-message",
}


def message_schema(exchange: str) -> str:
    """The schema of the messages on an exchange, which is named ``task-pending`` and the like.

    Source: the exchanges.json of the original queue. Two names differ from the rule.
    """
    return _MESSAGES.get(exchange, f"{exchange}-message")
