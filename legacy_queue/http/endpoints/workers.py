"""Endpoints about provisioners, pools and workers. Source: docs/explanation/http-contract.md.

The queue keeps a record of each one that called the queue or was declared. None has to be declared first.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from legacy_queue.domain.scopes import AllOf, AnyOf, ForEach
from legacy_queue.domain.times import parse_field, parse_time
from legacy_queue.domain.worker_record import (
    PoolPath,
    ProvisionerPath,
    RecordPlace,
    WorkerPath,
    WorkerRecord,
    path_in,
)
from legacy_queue.http.endpoint import Call, Endpoint, Handler, Reply, endpoint
from legacy_queue.http.paging import PAGED, RenderItem, path_page_answer
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.services.pagination import Page

_PROVISIONERS = "/provisioners"
_PROVISIONER = f"{_PROVISIONERS}/<provisionerId>"
_WORKER_TYPES = f"{_PROVISIONER}/worker-types"
_WORKER_TYPE = f"{_WORKER_TYPES}/<workerType>"
_WORKERS = f"{_WORKER_TYPE}/workers"
_OF_WORKER = "<workerGroup>/<workerId>"
_OF_POOL = "<provisionerId>/<workerType>"

_experimental = partial(endpoint, stability="experimental")
_listing = partial(_experimental, "GET", query=PAGED)
_getting = partial(_experimental, "GET")


def _declaring(route: str, title: str, scope: str, schema: str) -> Callable[[Handler], Endpoint]:
    """Makes the decorator of a declaring endpoint.

    A declaration without properties needs the scope for at least one property. Otherwise every client could
    add records.
    """
    request = f"update-{schema}-request"
    response = f"{schema}-response"
    of_each = ForEach("property", "properties", f"queue:declare-{scope}#<property>")
    of_any = AnyOf(tuple(f"queue:declare-{scope}#{name}" for name in SCHEMAS[request]["properties"]))
    scopes = AllOf((of_each, of_any))
    return _experimental("PUT", route, title, scopes=scopes, input=request, output=response)


@_listing(
    _PROVISIONERS,
    "Get a list of all active provisioners",
    scopes="queue:list-provisioners",
    output="list-provisioners-response",
)
def list_provisioners(call: Call) -> Reply:
    """List all known provisioners, in pages of at most ``limit`` provisioners.

    If the page has a continuationToken, there are more: repeat the call with the token as a query parameter.
    A page may have fewer entries than ``limit`` and still not be the last. For callers under
    ``/api/queue/v1``, a provisioner exists as long as it has a task queue.
    """
    if call.is_todays:
        ask = call.authorize().services.workers.provisioners_of_today
        return path_page_answer(call, "provisioners", 1, ask, WorkerRecord.to_wire)
    return _page(call, None, "provisioners", WorkerRecord.to_wire)


@_getting(
    _PROVISIONER,
    "Get an active provisioner",
    scopes="queue:get-provisioner:<provisionerId>",
    output="provisioner-response",
)
def get_provisioner(call: Call) -> Reply:
    """Get the record of a provisioner. Its lastDateActive may be half an hour old.

    For callers under ``/api/queue/v1``, a provisioner exists as long as it has a task queue.
    """
    if call.is_todays:
        workers = call.authorize().services.workers
        return workers.provisioner_of_today(ProvisionerPath(*call.params.values())).to_wire()
    return _get(call)


@_declaring(_PROVISIONER, "Update a provisioner", "provisioner:<provisionerId>", "provisioner")
def declare_provisioner(call: Call) -> Reply:
    """Declare some properties of a provisioner. Its other properties stay as they are.

    The provisioner need not be known. If it was not active in the last six hours, it becomes active. A call
    without properties needs the scope for any one property.
    """
    return _declare(call)


@_listing(
    _WORKER_TYPES,
    "Get a list of all active worker-types",
    scopes="queue:list-worker-types:<provisionerId>",
    output="list-workertypes-response",
)
def list_worker_types(call: Call) -> Reply:
    """List the known pools of a provisioner, in pages like listProvisioners."""
    return _page(call, ProvisionerPath(*call.params.values()), "workerTypes", WorkerRecord.to_wire)


@_getting(
    _WORKER_TYPE,
    "Get a worker-type",
    scopes=f"queue:get-worker-type:{_OF_POOL}",
    output="workertype-response",
)
def get_worker_type(call: Call) -> Reply:
    """Get the record of a pool, and those actions of its provisioner whose context is ``worker-type``."""
    return _get(call)


@_declaring(_WORKER_TYPE, "Update a worker-type", f"worker-type:{_OF_POOL}", "workertype")
def declare_worker_type(call: Call) -> Reply:
    """Declare some properties of a pool, as declareProvisioner does for a provisioner.

    If the provisioner would expire before its pool, it now expires together with it.
    """
    return _declare(call)


@_experimental(
    "GET",
    _WORKERS,
    "Get a list of all active workers of a workerType",
    scopes=f"queue:list-workers:{_OF_POOL}",
    query=(*PAGED, "quarantined"),
    output="list-workers-response",
)
def list_workers(call: Call) -> Reply:
    """List the known workers of a pool, in pages like listProvisioners.

    ``quarantined=true`` lists only the workers in quarantine, ``quarantined=false`` only the others. With it
    a page may have very few workers.
    """
    return _page(call, PoolPath(*call.params.values()), "workers", _summary)


@_getting(
    f"{_WORKERS}/{_OF_WORKER}",
    "Get a worker-type",
    scopes=f"queue:get-worker:{_OF_POOL}/{_OF_WORKER}",
    output="worker-response",
)
def get_worker(call: Call) -> Reply:
    """Get the record of a worker: the last runs that it claimed, and how long it is in quarantine."""
    return _get(call)


@_experimental(
    "PUT",
    f"{_WORKERS}/{_OF_WORKER}",
    "Quarantine a worker",
    scopes=AllOf((f"queue:quarantine-worker:{_OF_POOL}/{_OF_WORKER}",)),
    input="quarantine-worker-request",
    output="worker-response",
)
def quarantine_worker(call: Call) -> Reply:
    """Give a worker no more work until ``quarantineUntil``. A time in the past ends its quarantine.

    During the quarantine claimWork gives it no task, and claimTask answers 409. The worker may finish the
    runs that it has claimed. If the queue does not know the worker, the answer is 404. ``quarantineInfo``
    says why; the record of the worker keeps it for the last 20 calls, with the client and the time.
    """
    until = parse_field(call.body, "quarantineUntil", parse_time)
    info = call.body.get("quarantineInfo", "")
    workers = call.authorize().services.workers
    return workers.quarantine(WorkerPath(*call.params.values()), until, call.client_id, info)


@_declaring(f"{_WORKER_TYPE}/{_OF_WORKER}", "Declare a worker", f"worker:{_OF_POOL}/{_OF_WORKER}", "worker")
def declare_worker(call: Call) -> Reply:
    """Declare when a worker expires, or, without a property, that it is active. It may be unknown so far."""
    return _declare(call)


def _get(call: Call) -> Reply:
    return call.authorize().services.workers.describe(path_in(call.params))


def _declare(call: Call) -> Reply:
    site = call.authorize(properties=sorted(call.body))
    return site.services.workers.declare(path_in(call.params), call.body)


def _page(
    call: Call,
    parent: ProvisionerPath | PoolPath | None,
    name: str,
    to_wire: Callable[[WorkerRecord], Any],
) -> Reply:
    workers = call.authorize().services.workers
    above = tuple(parent or ())
    is_quarantined = {"true": True, "false": False}.get(call.query.get("quarantined", ""))

    def ask(after: RecordPlace, limit: int, render: RenderItem) -> Page[RecordPlace]:
        begin = (*above, *after) if after else ()
        page = workers.list(parent, begin, limit, render, is_quarantined)
        return Page(page.items, page.after and page.after[len(above) :])

    return path_page_answer(call, name, 2 if name == "workers" else 1, ask, to_wire)


def _summary(record: WorkerRecord) -> dict[str, Any]:
    """The worker's entry in a list."""
    wire = record.to_wire()
    names = (
        "workerGroup",
        "workerId",
        "firstClaim",
        "lastDateActive",
        "quarantineUntil",
        "quarantineDetails",
    )
    summary = {name: wire[name] for name in names if name in wire}
    return {**summary, "latestTask": wire["recentTasks"][-1]} if wire["recentTasks"] else summary
