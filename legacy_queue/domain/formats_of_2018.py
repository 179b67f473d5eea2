"""What has been added to answers and events since 2018, and what has been removed.

Strict readers of 2018 refuse what was added. So an answer or event in the shape of 2018 leaves it out.

Source: the schemas of the original queue's last complete version, 84a800f5, and of today's queue. An answer
or event that is not named here is the same in both generations, or exists only in today's queue.
"""

from collections.abc import Mapping
from typing import Any

BY_PATH = "by-path"  # the shape of 2018 under /v1, elsewhere today's
SHAPES = ("2018", "today")
MAX_DEPENDENCIES = 10_000  # of a task
MAX_DEPENDENCIES_2018 = 100
# for each property: what differs in its value, or None if the property is left out
Difference = Mapping[str, Any]

_OF_A_POOL = dict.fromkeys(("taskQueueId",))
_OF_A_TASK = dict.fromkeys(("taskQueueId", "projectId"))
_STATUS = {**_OF_A_TASK, "priority": None}
_BOTH = {"status": _STATUS, "task": _OF_A_TASK}
_OF_A_WORKER = dict.fromkeys(("taskQueueId", "lastDateActive", "quarantineDetails"))
_EVENT = {"status": _STATUS, "task": None}
# link and object redirect elsewhere, as a reference does
_OF_AN_ARTIFACT = {"storageType": {"link": "reference", "object": "reference"}, "contentLength": None}
_NO_ACTIONS: Difference = {"actions": None}

SINCE_2018: Mapping[str, Difference] = {
    # by the name of the answer's schema
    "task": _OF_A_TASK,
    "task-status-response": _BOTH,
    "task-claim-response": _BOTH,
    "task-reclaim-response": _BOTH,
    "claim-work-response": {"tasks": _BOTH},
    "list-dependent-tasks-response": {"tasks": _BOTH},
    "list-task-group-response": {"tasks": _BOTH, **dict.fromkeys(("schedulerId", "expires", "sealed"))},
    "list-artifacts-response": {"artifacts": _OF_AN_ARTIFACT},
    "pending-tasks-response": _OF_A_POOL,
    "workertype-response": _OF_A_POOL,
    "list-workertypes-response": {"workerTypes": _OF_A_POOL},
    "worker-response": _OF_A_WORKER,
    "list-workers-response": {"workers": _OF_A_WORKER},
    # by the name of the event's exchange
    "artifact-created": {"status": _STATUS, "artifact": _OF_AN_ARTIFACT},
    **dict.fromkeys(("task-defined", "task-pending", "task-running"), _EVENT),
    **dict.fromkeys(("task-completed", "task-failed", "task-exception"), _EVENT),
}
# by the name of the answer's schema: today's queue has no actions, and its schemas forbid other properties
TODAY: Mapping[str, Difference] = {
    **dict.fromkeys(("provisioner-response", "workertype-response", "worker-response"), _NO_ACTIONS),
    "list-provisioners-response": {"provisioners": _NO_ACTIONS},
}


def reshaped(value: Any, difference: Any) -> Any:
    """Returns the value as the other generation has it. ``difference`` says what to leave out or replace."""
    match value:
        case dict():
            other = {**value}
            for name in difference:
                if name in value and difference[name] is None:
                    del other[name]
                elif name in value:
                    other[name] = reshaped(value[name], difference[name])
            return other
        case list():
            return [reshaped(item, difference) for item in value]
    return difference.get(value, value)
