"""Lists every endpoint of the server. Each module of ``endpoints`` declares its own."""

from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.endpoints import (
    artifacts,
    control,
    event_stream,
    groups,
    inspect,
    legacy_stubs,
    liveness,
    migration,
    objects,
    runs,
    task_queues,
    tasks,
    workers,
)
from legacy_queue.http.fault_injection import target_of
from legacy_queue.http.page import actions, pages
from legacy_queue.services.control.fault import SIGNED_URLS

# in the order of the reference
_MODULES = (
    *(liveness, tasks, groups, runs, task_queues, artifacts, workers, objects),
    *(legacy_stubs, migration, inspect, event_stream, control, pages, actions),
)

# Each is listed once: a module that imports an endpoint must come after the module that declares it.
DECLARED = tuple(
    dict.fromkeys(
        value for module in _MODULES for value in vars(module).values() if isinstance(value, Endpoint)
    )
)


def served_by(*services: str) -> tuple[Endpoint, ...]:
    """Returns the endpoints of these services, in the order of the reference."""
    return tuple(endpoint for endpoint in DECLARED if endpoint.service in services)


QUEUE = tuple(endpoint for endpoint in served_by("queue") if endpoint.has_prefix)
FAULT_TARGETS = (*map(target_of, (*QUEUE, *served_by("object"))), *SIGNED_URLS)
NOT_IN_JOURNAL = frozenset({"static", *(endpoint.name for endpoint in DECLARED if not endpoint.is_recorded)})
