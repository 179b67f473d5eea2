"""The summary of a server for the report of a failed test. It is compact and contains no secrets."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from itertools import groupby
from typing import Any

import requests

from legacy_queue.domain.times import duration_words
from legacy_queue.history.picture import STYLE, history_html, legend_html
from legacy_queue.history.words import explanation_lines, requester, task_line
from legacy_queue.queue_client import QueueClient, RequestFailed
from legacy_queue.testing.server_process import ServerFailed, ServerProcess

_MAX_TASKS = 20
_MAX_POOLS = 5
_MAX_MESSAGES = 10
_MAX_WARNINGS = 10
# so many requests are read for a line, because an idle worker polls seven queues again and again
_REQUESTS_PER_LINE = 10
_UNIQUE_FIELDS = ("sequence", "begun", "time", "requestId", "path", "priority", "ms")
_MAX_WIDTH = 300  # characters of a line
_PAGE = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>legacy-queue</title><style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; overflow-wrap: anywhere }}
h1 {{ font-size: 18px }}
{STYLE}</style>
"""


def summarize(http: QueueClient, pools: Iterable[str], process: ServerProcess, limit: int) -> str:
    """The summary of a server.

    It has the last requests in ``limit`` lines, what happened to each task (also to resolved ones), the
    messages of their pools and of ``pools``, the faults, and the warnings in the server's log. If a part
    cannot be read, the summary says so; after a request without an answer no further part is read. If the
    server has ended, the summary is the last lines of its log.
    """
    try:
        process.check()
    except ServerFailed as failed:
        return str(failed)
    statuses: list[Mapping[str, Any]] = []

    def tasks() -> Iterable[str]:
        answer = http.call("GET", "/inspect/v1/tasks", state="all", limit=_MAX_TASKS)
        statuses.extend(answer["tasks"])
        for status in statuses:
            yield from explanation_lines(http.call("GET", f"/inspect/v1/task/{status['taskId']}"))
        yield from ["..."] if "continuationToken" in answer else []

    def messages() -> Iterable[str]:
        of_tasks = {f"{status['provisionerId']}/{status['workerType']}" for status in statuses}
        for pool in sorted({*pools, *of_tasks})[:_MAX_POOLS]:
            listed = http.call("GET", f"/inspect/v1/messages/{pool}")
            yield from (f"{pool} {message_line(message)}" for message in listed["messages"][:_MAX_MESSAGES])
            if hidden := listed["hidden"] + len(listed["messages"][_MAX_MESSAGES:]):
                yield f"{pool} {hidden} more, invisible or not listed"

    parts: dict[str, Callable[[], Iterable[str]]] = {
        "the queue's time": lambda: [clock_line(http.call("GET", "/control/v1/clock"))],
        "last requests": lambda: request_lines(
            http.call("GET", "/control/v1/requests", limit=limit * _REQUESTS_PER_LINE)["requests"]
        )[-limit:],
        "tasks": tasks,
        "messages": messages,
        "faults": lambda: map(fault_line, http.call("GET", "/control/v1/faults")["faults"]),
    }
    lines: list[str] = []
    try:
        for title, read in parts.items():
            lines += _part(title, read)
    except requests.RequestException as error:  # another request would wait as long as this one
        lines.append(f"the rest cannot be read: {error}")
    lines += _part("warnings of the server", lambda: process.warnings()[-_MAX_WARNINGS:])
    return "\n".join(lines)


def history_page(http: QueueClient) -> str:
    """A page of what happened to the first tasks, resolved ones too. Raises RequestFailed, ServerFailed."""
    statuses = http.call("GET", "/inspect/v1/tasks", state="all", limit=_MAX_TASKS)["tasks"]
    page = _PAGE
    for status in statuses:
        answer = http.call("GET", f"/inspect/v1/task/{status['taskId']}")
        page += f"<h1>{escape(task_line(status))}</h1>\n{history_html(answer, status['taskId'])}\n"
    return f"{page}<h2>How to read the picture</h2>{legend_html()}\n"


def _part(title: str, read: Callable[[], Iterable[str]]) -> Iterable[str]:
    try:
        lines = [line[:_MAX_WIDTH] for line in read()]
    except (RequestFailed, ServerFailed) as error:
        lines = [f"cannot be read: {error}"]
    return [f"{title}:", *(f"  {line}" for line in lines)] if lines else [f"{title}: none"]


def clock_line(clock: Mapping[str, Any]) -> str:
    """``2026-01-02T03:04:05.000Z, 21m ahead of the real time, frozen``"""
    offset = clock["offset"]
    words = [clock["now"]]
    if offset:
        words.append(f"{duration_words(abs(offset))} {'ahead of' if offset > 0 else 'behind'} the real time")
    words += ["frozen"] if clock["frozen"] else []
    words += [] if clock["movable"] else [clock["reason"]]
    return ", ".join(words)


def request_lines(journal: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each request. Equal requests in a row share a line."""

    def comparable(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in entry.items() if name not in _UNIQUE_FIELDS}

    same = [list(entries) for _, entries in groupby(journal, comparable)]
    return [request_line(first) + f" ({len(more) + 1} times)" * bool(more) for first, *more in same]


def request_line(entry: Mapping[str, Any]) -> str:
    """``03:04:05.678 claimTask 409 RequestConflict 3.1 ms <taskId>/0 by <workerGroup>/<workerId>: reason``"""
    run = f"{entry.get('taskId', '')}/{entry['runId']}" if "runId" in entry else entry.get("taskId", "")
    by = requester(entry)
    reason = entry.get("reason", "")
    # the reason may already name the fault
    is_new = "fault" in entry and entry["fault"] not in reason
    words = [
        entry["time"][11:23],
        f"{entry.get('endpoint') or entry['method'] + ' ' + entry['path']:<15}",
        str(entry["status"] or "no answer"),
        entry.get("code"),
        f"{entry['ms']:g} ms",
        " ".join(entry.get("taskIds", [run])),
        by and f"by {by}",
        is_new and f"(fault {entry['fault']})",
    ]
    return " ".join(filter(None, words)) + (f": {reason}" if reason else "")


def message_line(message: Mapping[str, Any]) -> str:
    """``<taskId>/0 lowest, visible in 290 s, dequeue count 1``. A message may name no task."""
    run = f"{message['taskId']}/{message['runId']}" if "taskId" in message else "(no task)"
    visible = f"visible in {message['visibleIn']:g} s" if message["visibleIn"] else "visible"
    return f"{run} {message['priority']}, {visible}, dequeue count {message['dequeueCount']}"


def fault_line(fault: Mapping[str, Any]) -> str:
    """``claimTask status=503 times=2, fired: 1``"""
    what = (
        f" {name}={value}" for name, value in fault.items() if name not in ("faultId", "endpoint", "fired")
    )
    return f"{fault['endpoint']}{''.join(what)}, fired: {fault['fired']}"
