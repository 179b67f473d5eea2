"""The JSON schemas about provisioners, worker types and workers. Source: the original's ``schemas/`` of 2018.

Its later ``lastDateActive`` of a worker is added. Texts are limited, so that what is declared fits an entity.
"""

from legacy_queue.domain.ids import IDENTIFIER, TASK_ID
from legacy_queue.domain.workers import ACTION_CONTEXTS, STABILITIES
from legacy_queue.http.schema_terms import STRING, TIME, Schema, list_of, object_of, text

_MOST_ACTIONS = 32  # of a provisioner

_ID = {"type": "string", "pattern": f"^{IDENTIFIER}$"}
_POOL = {"provisionerId": _ID, "workerType": _ID}
_WORKER = {"workerGroup": _ID, "workerId": _ID}
_CONTINUED = {"continuationToken": STRING}

_ACTIONS = list_of(
    object_of(
        {
            "name": text(255),
            "title": text(255),
            "context": {"enum": list(ACTION_CONTEXTS)},
            "url": text(4096, "[!-~]+"),  # no more than that: it holds <provisionerId> and the like
            "method": {"enum": ["POST", "PUT", "DELETE", "PATCH"]},
            "description": text(1024),
        }
    ),
    _MOST_ACTIONS,
)
_TASK_RUN = object_of(
    {
        "taskId": {"type": "string", "pattern": f"^{TASK_ID}$"},
        "runId": {"type": "integer", "minimum": 0, "maximum": 1000},
    }
)
_STABILITY = {"enum": list(STABILITIES)}
_ACTIVE = {"expires": TIME, "lastDateActive": TIME}
_DESCRIBED = {"description": STRING, "stability": _STABILITY, **_ACTIVE}
_DECLARED = {"description": text(16_384), "stability": _STABILITY, "expires": TIME}
_PROVISIONER = object_of({"provisionerId": _ID, **_DESCRIBED, "actions": _ACTIONS})
_SEEN = {"firstClaim": TIME, "lastDateActive": TIME}
_QUARANTINE = {"quarantineUntil": TIME}


WORKER_SCHEMAS: dict[str, Schema] = {
    "provisioner-response": _PROVISIONER,
    "workertype-response": object_of({**_POOL, **_DESCRIBED, "actions": _ACTIONS}),
    "worker-response": object_of(
        {
            **_POOL,
            **_WORKER,
            **_SEEN,
            "expires": TIME,
            "recentTasks": list_of(_TASK_RUN),
            "actions": _ACTIONS,
        },
        _QUARANTINE,
    ),
    "update-provisioner-request": object_of({}, {**_DECLARED, "actions": _ACTIONS}),
    "update-workertype-request": object_of({}, _DECLARED),
    "update-worker-request": object_of({}, {"expires": TIME}),
    "quarantine-worker-request": object_of(_QUARANTINE),
    "list-provisioners-response": object_of({"provisioners": list_of(_PROVISIONER)}, _CONTINUED),
    "list-workertypes-response": object_of(
        {"workerTypes": list_of(object_of({**_POOL, **_DESCRIBED}))}, _CONTINUED
    ),
    "list-workers-response": object_of(
        {"workers": list_of(object_of({**_WORKER, **_SEEN}, {**_QUARANTINE, "latestTask": _TASK_RUN}))},
        _CONTINUED,
    ),
}
