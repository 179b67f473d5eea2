"""The schemas of ``/control/v1``."""

from legacy_queue.http.fault_schemas import FAULT_SCHEMAS
from legacy_queue.http.schema_helpers import STRING, Schema
from legacy_queue.http.schema_properties import object_of

CONTROL_SCHEMAS: dict[str, Schema] = {
    "control-clock": object_of(
        "now offset frozen movable",
        "reason",
        offset={"type": "number"},
        reason=STRING,
    ),
    **FAULT_SCHEMAS,
}
