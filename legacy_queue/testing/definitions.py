"""Task definitions with defaults for the required fields, and the names of pools."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.domain.times import format_time

PROVISIONER_ID = "test-provisioner"
WORKER_TYPE = "test-worker-type"
WORKER_GROUP = "test-group"
WORKER_ID = "test-worker"

_DEADLINE = timedelta(days=1)  # from now
_METADATA = {
    "name": "test task",
    "description": "Created by a test",
    "owner": "tests@example.com",
    "source": "https://example.com/tests",
}


def wire_name(name: str) -> str:
    """``task_group_id`` -> ``taskGroupId``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def definition(
    now: datetime, fields: Mapping[str, Any], body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The body of createTask. ``fields``, which are named as in Python, replace those of ``body`` or the
    defaults.

    A time may be a datetime, or a timedelta that counts from ``now``. Metadata in ``fields`` replaces only
    the entries that it names.
    """
    wire = {wire_name(name): wire_value(value, now) for name, value in fields.items()}
    if body is None:
        pool = {"provisionerId": PROVISIONER_ID, "workerType": WORKER_TYPE}
        times = {"created": format_time(now), "deadline": format_time(now + _DEADLINE)}
        body = {**times, "payload": {}, "metadata": _METADATA, **({} if "taskQueueId" in wire else pool)}
    return {**body, **wire, "metadata": {**body.get("metadata", {}), **wire.get("metadata", {})}}


def pool_name(worker_type: str | None, provisioner_id: str | None, task_queue_id: str | None) -> str:
    """The pool as ``<provisionerId>/<workerType>``. None stands for a default."""
    return task_queue_id or f"{provisioner_id or PROVISIONER_ID}/{worker_type or WORKER_TYPE}"


def wire_value(value: Any, now: datetime) -> Any:
    """The value for JSON. A timedelta counts from ``now``."""
    if isinstance(value, timedelta):
        value = now + value
    return format_time(value) if isinstance(value, datetime) else value
