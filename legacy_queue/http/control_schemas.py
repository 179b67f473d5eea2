"""The schemas of ``/control/v1``."""

from legacy_queue.http.fault_schemas import FAULT_SCHEMAS
from legacy_queue.http.schema_helpers import STRING, Schema, text
from legacy_queue.http.schema_properties import PROPERTIES, object_of, page_of

_DURATION = "[1-9][0-9]{0,12}ms|[1-9][0-9]{0,8}[smhd]"  # 1500ms, 90s, 21m, 2h, 5d
_TRUE: Schema = {"const": True}

CONTROL_SCHEMAS: dict[str, Schema] = {
    "control-clock": object_of(
        "now offset frozen movable",
        "reason",
        offset={"type": "number"},
        reason=STRING,
    ),
    "move-clock-request": {
        **object_of("", "advance freeze release", advance=text(15, _DURATION), freeze=_TRUE, release=_TRUE),
        "minProperties": 1,
        "maxProperties": 1,
    },
    "control-tasks-response": page_of("tasks", PROPERTIES["status"]),
    "control-empty": object_of(),
    **FAULT_SCHEMAS,
}
