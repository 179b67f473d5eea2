"""Endpoints that list tasks, a page at a time. Source: "Methods" in design/api.md."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.http.endpoint import Call, endpoint
from legacy_queue.services.listing import Listed

_MOST = 1000
_PAGED = ("continuationToken", "limit")


@endpoint(
    "listTaskGroup",
    "GET",
    "/task-group/<taskGroupId>/list",
    "List Task Group",
    query=_PAGED,
    output="list-task-group-response",
)
def list_task_group(call: Call) -> Mapping[str, Any]:
    """The tasks of a group, up to ``limit`` at a time; a page may hold fewer and not be the last.

    Where there may be more there is a continuationToken, which as a query parameter gives the next page. A
    task that joins meanwhile makes no other task be listed twice or not at all.
    """
    task_group_id = call.params["taskGroupId"]
    listed = call.authorize().listing.group(task_group_id, _after(call, task_group_id), _limit(call))
    return {"taskGroupId": task_group_id, **_page(call, task_group_id, listed)}


@endpoint(
    "listDependentTasks",
    "GET",
    "/task/<taskId>/dependents",
    "List Dependent Tasks",
    query=_PAGED,
    output="list-dependent-tasks-response",
)
def list_dependent_tasks(call: Call) -> Mapping[str, Any]:
    """The tasks that depend on a task, in pages as those of listTaskGroup."""
    listed = call.authorize().listing.dependents(call.task_id, _after(call, call.task_id), _limit(call))
    return {"taskId": call.task_id, **_page(call, call.task_id, listed)}


def _limit(call: Call) -> int:
    return int(call.query.get("limit", _MOST))


def _page(call: Call, list_id: str, listed: Listed) -> dict[str, Any]:
    page: dict[str, Any] = {
        "tasks": [{"status": task.status(), "task": task.definition.wire} for task in listed.tasks]
    }
    if listed.after is not None:
        page["continuationToken"] = _token(call.name, list_id, listed.after)
    return page


def _token(name: str, list_id: str, after: str) -> str:
    """Where a list goes on. The check tells a token that was cut, changed, or given for another list."""
    check = hashlib.sha256(f"{name}/{list_id}/{after}".encode()).hexdigest()[:16]
    content = json.dumps({"list": name, "of": list_id, "after": after, "check": check})
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _after(call: Call, list_id: str) -> str:
    """Where the caller's token says that this list goes on, else "", its beginning.

    An empty token is none: so a JavaScript client sends one that is undefined.
    """
    token = call.query.get("continuationToken")
    if not token:
        return ""
    try:
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        after = str(content["after"])
    except (ValueError, KeyError, TypeError):
        after = ""
    if not re.fullmatch(TASK_ID, after) or token != _token(call.name, list_id, after):
        raise InvalidRequestArguments(
            f"continuationToken is {token!r}: one is accepted that {call.name} gave for {list_id}"
        )
    return after


ENDPOINTS = (list_task_group, list_dependent_tasks)
