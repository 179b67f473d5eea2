"""The buttons on a task's page. Each sends a form that calls the API.

The form has a token against forgery, and the caller needs the scopes of the call.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from flask import Response

from legacy_queue.domain.errors import InputError, InsufficientScopes
from legacy_queue.domain.scopes import missing
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import MILLISECOND, duration_words, parse_field, parse_time
from legacy_queue.http.endpoint import Call, Endpoint, endpoint
from legacy_queue.http.endpoints.control import move_clock
from legacy_queue.http.endpoints.groups import change_task_priority
from legacy_queue.http.endpoints.inspect import SCOPE
from legacy_queue.http.endpoints.tasks import cancel_task, rerun_task, schedule_task
from legacy_queue.http.request_log import record_of
from legacy_queue.http.site import Site

ACTIONS: Mapping[str, Endpoint] = {
    "cancel": cancel_task,
    "rerun": rerun_task,
    "schedule": schedule_task,
    "priority": change_task_priority,
    "clock": move_clock,
}
_NEXT_TIMES = {
    "received": "Release the message",
    "delayed": "Release the message",
    "claimed": "Expire the claim",
    "quarantined": "Let the quarantine end",
    "message-missing": "Let the sweeper offer the run again",
    "deadline": "Let the deadline pass",
}


page_endpoint = partial(
    endpoint, scopes=SCOPE, service="page", has_prefix=False, is_recorded=False, takes_cookies=True
)


def possible_actions(call: Call, site: Site, task: Task, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The actions that fit the task's state, and that the caller has the scopes for.

    "clock" has a triple for each time that the clock can be moved to: the time, what it does to the task, and
    how long it is until then.
    """
    if not site.sign_in.token(call.environ):
        return {}
    states = {
        "cancel": not task.is_resolved,
        "rerun": task.is_resolved and answer["now"] < answer["status"]["deadline"],
        "schedule": task.state == "unscheduled",
        "priority": not task.is_resolved,
    }
    possible: dict[str, Any] = {
        name: True for name, fits in states.items() if fits and _may(call, ACTIONS[name], task)
    }
    if site.control and not site.control.clock.state().reason and _may(call, move_clock, task):
        now = parse_time(answer["now"])
        possible["clock"] = [
            (
                until,
                _NEXT_TIMES.get(wait["situation"], "Move the clock"),
                duration_words(left.total_seconds()),
            )
            for wait in answer["waitsFor"]
            if (until := wait.get("until"))
            for left in [parse_time(until) - now]
        ]
    return possible


@page_endpoint("POST", "/ui/tasks/<taskId>", "Act On Task", input="page-action")
def act_on_task(call: Call) -> Response:
    """Make the call that the form names. The answer leads back to the page of the task."""
    site = call.authorize()
    body = call.body
    if not site.sign_in.is_own(call.environ, body["token"]):
        raise InsufficientScopes("this form belongs to another session: load the page again")
    target = ACTIONS[body["action"]]
    sent = None
    if target is change_task_priority:
        sent = {"newPriority": body["newPriority"]}
    elif target is move_clock:
        if not site.control:
            raise InputError("action is clock, but only a server with --control can move its clock")
        left = parse_field(body, "until", parse_time) - site.control.clock.state().now
        sent = {"advance": f"{max(left // MILLISECOND, 0) + 1}ms"}
    record_of(call.environ).endpoint = target.name
    target.handler(call.of(target, sent))
    return Response(status=303, headers={"Location": call.environ["PATH_INFO"], "Cache-Control": "no-store"})


def _may(call: Call, target: Endpoint, task: Task) -> bool:
    definition = task.definition
    fields = {
        "taskId": task.task_id,
        "schedulerId": definition.scheduler_id,
        "taskGroupId": definition.task_group_id,
        "projectId": definition.project_id,
        "provisionerId": task.work_queue.provisioner_id,
        "workerType": task.work_queue.worker_type,
        "priorities": ["highest"],
    }
    return target.scopes is not None and any(
        missing(call.scopes, target.scopes, {**fields, "directions": [direction]}) is None
        for direction in ("raise", "lower")
    )
