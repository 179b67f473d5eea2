"""Endpoints about provisioners, worker types and workers. Source: "Methods" in design/api.md.

What is declared or seen is known; what is not need not be declared before it is used.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flask import Response

from legacy_queue.domain.errors import InsufficientScopes
from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.domain.scopes import AllOf, ForEach
from legacy_queue.domain.times import given_time
from legacy_queue.domain.workers import ID_NAMES, Known, Path
from legacy_queue.http.endpoint import Call, endpoint
from legacy_queue.http.paging import PAGED, after, limit, page_answer, render

Answer = Mapping[str, Any]

_PROVISIONERS = "/provisioners"
_WORKER_TYPES = f"{_PROVISIONERS}/<provisionerId>/worker-types"
_WORKERS = f"{_WORKER_TYPES}/<workerType>/workers"
_WORKER = "<workerGroup>/<workerId>"
_OF_POOL = "<provisionerId>/<workerType>"


def _declaring(kind: str, path: str) -> AllOf:
    return AllOf((ForEach("property", "properties", f"queue:declare-{kind}:{path}#<property>"),))


@endpoint(
    "listProvisioners",
    "GET",
    _PROVISIONERS,
    "Get a list of all active provisioners",
    query=PAGED,
    output="list-provisioners-response",
    stability="experimental",
)
def list_provisioners(call: Call) -> Response:
    """All provisioners that are known, up to ``limit`` at a time; a page may hold fewer and not be the last.

    Where more follow there is a continuationToken, which as a query parameter gives the next page.
    """
    return _page(call, "provisioners", Known.to_wire)


@endpoint(
    "getProvisioner",
    "GET",
    f"{_PROVISIONERS}/<provisionerId>",
    "Get an active provisioner",
    output="provisioner-response",
    stability="experimental",
)
def get_provisioner(call: Call) -> Answer:
    """What is known of a provisioner; lastDateActive may be half an hour old."""
    return _described(call)


@endpoint(
    "declareProvisioner",
    "PUT",
    f"{_PROVISIONERS}/<provisionerId>",
    "Update a provisioner",
    scopes=_declaring("provisioner", "<provisionerId>"),
    input="update-provisioner-request",
    output="provisioner-response",
    stability="experimental",
)
def declare_provisioner(call: Call) -> Answer:
    """Declare some properties of a provisioner, known before or not; the others stay as they are.

    None at all says that it is active: any client may.
    """
    return _declared(call)


@endpoint(
    "listWorkerTypes",
    "GET",
    _WORKER_TYPES,
    "Get a list of all active worker-types",
    query=PAGED,
    output="list-workertypes-response",
    stability="experimental",
)
def list_worker_types(call: Call) -> Response:
    """The worker types of a provisioner that are known, in pages as those of listProvisioners."""
    return _page(call, "workerTypes", Known.to_wire)


@endpoint(
    "getWorkerType",
    "GET",
    f"{_WORKER_TYPES}/<workerType>",
    "Get a worker-type",
    output="workertype-response",
    stability="experimental",
)
def get_worker_type(call: Call) -> Answer:
    """What is known of a worker type, with those of its provisioner's actions that are for worker types."""
    return _described(call)


@endpoint(
    "declareWorkerType",
    "PUT",
    f"{_WORKER_TYPES}/<workerType>",
    "Update a worker-type",
    scopes=_declaring("worker-type", _OF_POOL),
    input="update-workertype-request",
    output="workertype-response",
    stability="experimental",
)
def declare_worker_type(call: Call) -> Answer:
    """Declare some properties of a worker type, known before or not; the others stay as they are.

    None at all says that it is active: any client may.
    """
    return _declared(call)


@endpoint(
    "listWorkers",
    "GET",
    _WORKERS,
    "Get a list of all active workers of a workerType",
    query=(*PAGED, "quarantined"),
    output="list-workers-response",
    stability="experimental",
)
def list_workers(call: Call) -> Response:
    """The workers of a worker type that are known, in pages as those of listProvisioners.

    With ``quarantined`` only those that are (true), or are not (false); such a page may hold few of many.
    """
    return _page(call, "workers", _summary)


@endpoint(
    "getWorker",
    "GET",
    f"{_WORKERS}/{_WORKER}",
    "Get a worker-type",
    output="worker-response",
    stability="experimental",
)
def get_worker(call: Call) -> Answer:
    """What is known of a worker: the last runs that it claimed, and until when it is quarantined if it is."""
    return _described(call)


@endpoint(
    "quarantineWorker",
    "PUT",
    f"{_WORKERS}/{_WORKER}",
    "Quarantine a worker",
    scopes=AllOf((f"queue:quarantine-worker:{_OF_POOL}/{_WORKER}",)),
    input="quarantine-worker-request",
    output="worker-response",
    stability="experimental",
)
def quarantine_worker(call: Call) -> Answer:
    """Let a worker have no work until then; a time that is past lifts its quarantine.

    claimWork gives it nothing, claimTask is a conflict. What it has claimed before it may bring to its end.
    One that is not known comes into being.
    """
    services = call.authorize()
    return services.workers.quarantine(_path(call), given_time(call.body, "quarantineUntil"))


@endpoint(
    "declareWorker",
    "PUT",
    f"{_WORKER_TYPES}/<workerType>/{_WORKER}",
    "Declare a worker",
    scopes=_declaring("worker", f"{_OF_POOL}/{_WORKER}"),
    input="update-worker-request",
    output="worker-response",
    stability="experimental",
)
def declare_worker(call: Call) -> Answer:
    """Declare when a worker expires, known before or not; or, with no property, that it is active."""
    return _declared(call)


def _path(call: Call) -> Path:
    return tuple(call.params[name] for name in ID_NAMES if name in call.params)


def _described(call: Call) -> Answer:
    return call.authorize().workers.describe(_path(call))


def _declared(call: Call) -> Answer:
    """A declaration of nothing needs no scope, as with the original; but strangers write nothing."""
    services = call.authorize(properties=sorted(call.body))
    if not call.client_id:
        raise InsufficientScopes(f"a request without credentials may not {call.name}")
    return services.workers.declare(_path(call), call.body)


def _page(call: Call, name: str, wire: Callable[[Known], Answer]) -> Response:
    services, parent = call.authorize(), _path(call)
    list_id = "/".join(parent) or "all provisioners"
    is_of_workers = len(parent) == 2
    place = after(call, list_id, f"{IDENTIFIER}/{IDENTIFIER}" if is_of_workers else IDENTIFIER)
    behind = (*parent, *place.split("/")) if place else ()
    is_quarantined = {"true": True, "false": False}.get(call.query.get("quarantined", ""))
    return page_answer(
        call,
        services,
        list_id,
        name,
        lambda: services.workers.list(
            parent, behind, limit(call), lambda known: render(wire(known)), is_quarantined
        ),
        place=lambda path: "/".join(path[len(parent) :]),
    )


def _summary(known: Known) -> Answer:
    """A worker in a list."""
    wire = known.to_wire()
    names = ("workerGroup", "workerId", "firstClaim", "lastDateActive", "quarantineUntil")
    summary = {name: wire[name] for name in names if name in wire}
    return {**summary, "latestTask": wire["recentTasks"][-1]} if wire["recentTasks"] else summary


ENDPOINTS = (
    list_provisioners,
    get_provisioner,
    declare_provisioner,
    list_worker_types,
    get_worker_type,
    declare_worker_type,
    list_workers,
    get_worker,
    quarantine_worker,
    declare_worker,
)
