"""What answers and events have since 2018, which strict readers of that time refuse, and have no more.

Source: the schemas of the original queue's last whole version, 84a800f5, and of today's. An answer or event
that is not named here is the same in both generations, or only today's queue has it.
"""

from collections.abc import Mapping
from typing import Any

BY_PATH = "by-path"  # 2018 under /v1, else today
SHAPES = ("2018", "today")
MAX_DEPENDENCIES = 10_000  # of a task
MAX_DEPENDENCIES_2018 = 100
# by property: what differs in its value, None to leave it out
Difference = Mapping[str, Any]

_OF_A_POOL = dict.fromkeys(("taskQueueId",))
_OF_A_TASK = dict.fromkeys(("taskQueueId", "projectId"))
_STATUS = {**_OF_A_TASK, "priority": None}
_BOTH = {"status": _STATUS, "task": _OF_A_TASK}
_OF_A_WORKER = dict.fromkeys(("taskQueueId", "lastDateActive", "quarantineDetails"))
_EVENT = {"status": _STATUS, "task": None}
# both redirect to other places, as a reference does
_OF_AN_ARTIFACT = {"storageType": {"link": "reference", "object": "reference"}, "contentLength": None}
_NO_ACTIONS: Difference = {"actions": None}

SINCE_2018: Mapping[str, Difference] = {
    # by the schema of the answer
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
    # by the exchange of the event
    "artifact-created": {"status": _STATUS, "artifact": _OF_AN_ARTIFACT},
    **dict.fromkeys(("task-defined", "task-pending", "task-running"), _EVENT),
    **dict.fromkeys(("task-completed", "task-failed", "task-exception"), _EVENT),
}
# by the schema of the answer: today's queue has no actions, and its schemas allow no other property
TODAY: Mapping[str, Difference] = {
    **dict.fromkeys(("provisioner-response", "workertype-response", "worker-response"), _NO_ACTIONS),
    "list-provisioners-response": {"provisioners": _NO_ACTIONS},
}


def reshaped(value: Any, difference: Any) -> Any:
    """The value as the other generation has it; a text may be another text."""
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
