"""legacy-queue status, tasks, pools, workers, peek, group, log, cancel, rerun and open."""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

import click

from legacy_queue.cli.completion import complete_groups, complete_tasks
from legacy_queue.cli.create_task import moved_time
from legacy_queue.cli.queue_options import (
    AnswerAndText,
    QueueCommand,
    id_type,
    pool_argument,
    pool_option,
    queue_options,
    reporting,
)
from legacy_queue.cli.tables import table
from legacy_queue.config.values import number, one_of
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.states import RESOLVED, UNRESOLVED
from legacy_queue.domain.times import age_words, duration_words, parse_time
from legacy_queue.history.words import explanation_lines, printable, task_line
from legacy_queue.queue_client import QueueClient

_STATES = ("unresolved", "all", *UNRESOLVED, *RESOLVED)
_MAX_ITEMS = 1000
_MAX_NAME = 24  # characters of a task's name, so that 80 columns have room for the state and the age
_WATCH_INTERVAL = 1  # seconds
_LOGS = "public/logs/"


def _limit(default: int, what: str) -> Callable[[Any], Any]:
    return click.option("--limit", type=number(0), default=default, help=f"{what}; 0 means all.")


task_argument = click.argument(
    "task_id", metavar="TASK", type=id_type("taskId"), shell_complete=complete_tasks
)


class _WithId(QueueCommand):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read an id that begins with a dash as an argument, not as options: old clients make such ids."""
        ids = [arg for arg in args if arg.startswith("-") and re.fullmatch(TASK_ID, arg)]
        moved = [*(arg for arg in args if arg not in ids), "--", *ids] if ids else args
        return super().parse_args(ctx, moved)


@click.command(cls=_WithId)
@task_argument
@click.option("--watch", is_flag=True, help="Print it again after each change, until the task is resolved.")
@reporting
def status(queue: QueueClient, task_id: str, watch: bool) -> AnswerAndText:
    """Say what a task is waiting for, until when, and what has happened to it.

    If the server runs with --control, you also see the requests about the task, including the refused ones.
    """
    path = f"/inspect/v1/task/{task_id}"
    answer = queue.call("GET", path, expected="waitsFor")
    while watch and answer["waitsFor"][0]["situation"] != "resolved":
        if not click.get_current_context().params["as_json"]:  # --json prints one document, at the end
            click.echo("\n".join([*explanation_lines(answer), ""]))
        before = _watched(answer)
        while _watched(answer) == before:
            time.sleep(_WATCH_INTERVAL)
            answer = queue.call("GET", path, expected="waitsFor")
    return answer, "\n".join(explanation_lines(answer))


@click.command(cls=QueueCommand)
@click.option(
    "--state",
    type=one_of(*_STATES),
    default="unresolved",
    metavar="STATE",
    help="Only tasks in this state: " + ", ".join(_STATES) + ".",
)
@pool_option
@_limit(100, "At most this many tasks")
@reporting
def tasks(queue: QueueClient, state: str, pool: str | None, limit: int) -> AnswerAndText:
    """List tasks. Embedded storage lists the newest first, others list them in the order of their taskIds.

    AGE counts from the creation of a task. REASON is why its last run ended.
    """
    answer = _listed(queue, "/inspect/v1/tasks", "tasks", limit, state=state, taskQueueId=pool)
    now = parse_time(answer["now"]) if "now" in answer else datetime.now(UTC)  # 0.1.0 does not say it
    rows = (_task_row(task, task, task.get("name", "-"), now) for task in answer["tasks"])
    return answer, table(_TASK_HEADS, rows, f"No task matches --state {state}.")


@click.command(cls=QueueCommand)
@_limit(100, "At most this many pools")
@reporting
def pools(queue: QueueClient, limit: int) -> AnswerAndText:
    """List the pools that have tasks or callers: their tasks, their messages, and who last asked for work.

    LAST ASKED is how long ago a worker or client called pollTaskUrls, claimTask or claimWork, or polled a
    signed URL of this server. A poll that another server process answered shows up within half a minute. The
    queue does not see polls that go to Azure or Azurite.
    """
    answer = _listed(queue, "/inspect/v1/pools", "pools", limit)
    heads = ("POOL", "PENDING", "RUNNING", "OLDEST", "MESSAGES", "LAST ASKED", "BY")
    rows = (_pool_row(pool, parse_time(answer["now"])) for pool in answer["pools"])
    return answer, table(heads, rows, "No pool has tasks or callers.")


@click.command(cls=QueueCommand)
@pool_option
@_limit(1000, "Workers of at most this many pools")
@reporting
def workers(queue: QueueClient, pool: str | None, limit: int) -> AnswerAndText:
    """List the workers: their last call or poll, their quarantine, and their last task.

    The queue learns from a claim which worker a client is. A client that has not claimed yet, or that claims
    for several workers, is listed by its clientId, because the queue cannot know which worker polled.
    """
    answer = _listed(queue, "/inspect/v1/pools", "pools", limit)
    found = [
        {"taskQueueId": each["taskQueueId"], **caller}
        for each in answer["pools"]
        if pool in (None, each["taskQueueId"])
        for caller in each["callers"]
    ]
    heads = ("WORKER", "POOL", "LAST CALL", "AGO", "QUARANTINED UNTIL", "LAST TASK")
    rows = (_worker_row(worker, parse_time(answer["now"])) for worker in found)
    return {"workers": found}, table(heads, rows, _no_worker(pool, answer["pools"]))


@click.command(cls=QueueCommand)
@pool_argument
@reporting
def peek(queue: QueueClient, pool: str) -> AnswerAndText:
    """Print the messages in the queues of a pool (provisionerId/workerType), without dequeuing any.

    Embedded storage lists all messages. Azurite and Azure list only visible ones, at most 32 of each queue.
    """
    answer = queue.call("GET", f"/inspect/v1/messages/{pool}", expected="messages")
    heads = ("TASK", "RUN", "PRIORITY", "VISIBLE", "DEQUEUED", "INSERTED", "MESSAGE")
    rows = (_message_row(message, parse_time(answer["now"])) for message in answer["messages"])
    text = table(heads, rows, f"There is no message to list for {pool}.")
    left_out = f"\n{answer['hidden']} more messages are hidden, or come after the first 32 of their queue."
    return answer, text + left_out * bool(answer["hidden"])


@click.command(cls=_WithId)
@click.argument("task_group_id", metavar="GROUP", type=id_type("taskGroupId"), shell_complete=complete_groups)
@_limit(1000, "At most this many tasks")
@reporting
def group(queue: QueueClient, task_group_id: str, limit: int) -> AnswerAndText:
    """List the tasks of a task group, and count them by state."""
    path = f"{queue.path}/task-group/{task_group_id}/list"
    answer = _listed(queue, path, "tasks", limit)
    counts = Counter(task["status"]["state"] for task in answer["tasks"])
    counted = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    now = moved_time(queue) or datetime.now(UTC)
    rows = (
        _task_row(each["status"], each["task"], each["task"]["metadata"]["name"], now)
        for each in answer["tasks"]
    )
    text = table(_TASK_HEADS, rows, "This group has no tasks.")
    return {**answer, "counts": counts}, "\n".join([text, counted] if counted else [text])


@click.command(cls=_WithId)
@task_argument
@click.option(
    "--artifact",
    metavar="NAME",
    show_default=f"the first that begins with {_LOGS}",
    help="The artifact to print.",
)
@queue_options
def log(queue: QueueClient, task_id: str, artifact: str | None) -> None:
    """Print the log of a task's last run, or another of its artifacts, exactly as it was uploaded."""
    artifacts = f"{queue.path}/task/{task_id}/artifacts"
    if artifact is None:
        listed = queue.call("GET", artifacts, expected="artifacts")
        names = [found["name"] for found in listed["artifacts"]]
        artifact = next((name for name in sorted(names) if name.startswith(_LOGS)), None)
        if artifact is None:
            has = f"its artifacts are {', '.join(names)}" if names else "it has no artifacts"
            raise click.ClickException(f"task {task_id} has no log: {has}")
    for chunk in queue.download(f"{artifacts}/{quote(artifact, safe='')}"):
        sys.stdout.buffer.write(chunk)


@click.command(cls=_WithId)
@task_argument
@reporting
def cancel(queue: QueueClient, task_id: str) -> AnswerAndText:
    """Cancel a task, and print its status."""
    return _changed(queue, task_id, "cancel")


@click.command(cls=_WithId)
@task_argument
@reporting
def rerun(queue: QueueClient, task_id: str) -> AnswerAndText:
    """Run a resolved task again, and print its status."""
    return _changed(queue, task_id, "rerun")


@click.command("open", cls=QueueCommand)
@click.option(
    "--for",
    "minutes",
    type=number(1, 60),
    default=5,
    metavar="MINUTES",
    help="How long the link works, at most 60 minutes.",
)
@reporting
def open_page(queue: QueueClient, minutes: int) -> AnswerAndText:
    """Print a link that signs a browser in to the queue's web page."""
    link = queue.page_link(timedelta(minutes=minutes))
    return {"link": link}, link


def _watched(answer: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts of an answer that change when something happens to the task, not just because time passes."""
    moments = [moment for moment in answer["story"] if moment["kind"] != "event"]  # as it is printed
    return answer["status"], moments, [wait["situation"] for wait in answer["waitsFor"]]


def _changed(queue: QueueClient, task_id: str, call: str) -> AnswerAndText:
    answer = queue.call("POST", f"{queue.path}/task/{task_id}/{call}", expected="status")
    return answer, task_line(answer["status"])


def _listed(queue: QueueClient, path: str, name: str, limit: int, **query: Any) -> dict[str, Any]:
    """The answer with up to ``limit`` items of its list, 0 for all. Standard error says if there are more."""
    items: list[Any] = []
    token: str | None = None
    while True:
        count = min(_MAX_ITEMS, limit - len(items)) if limit else _MAX_ITEMS
        page = {"limit": count, "continuationToken": token, **query}
        answer = queue.call("GET", path, expected=name, **page)
        items += answer.pop(name)
        token = answer.get("continuationToken")
        if token is None or len(items) == limit:
            if token:
                total = answer.get("total")
                more = f" of {total} {name}." if total else f" {name}. There may be more."
                click.echo(f"Listed {limit}{more} --limit 0 lists all.", err=True)
            return {**answer, name: items}


_TASK_HEADS = ("TASK", "NAME", "STATE", "AGE", "POOL", "REASON", "PRIORITY", "RUNS", "DEADLINE")


def _task_row(
    status: Mapping[str, Any], task: Mapping[str, Any], name: str, now: datetime
) -> tuple[str, ...]:
    """``task`` has the priority, which a status of 2018 lacks. It has no ``created`` if 0.1.0 answered."""
    shown = printable(name)
    age = (now - parse_time(task["created"])).total_seconds() if "created" in task else None
    return (
        status["taskId"],
        shown if len(shown) <= _MAX_NAME else f"{shown[: _MAX_NAME - 1]}…",
        status["state"],
        "-" if age is None else age_words(max(0.0, age)),
        f"{status['provisionerId']}/{status['workerType']}",
        [{}, *status["runs"]][-1].get("reasonResolved", "-"),
        task["priority"],
        str(len(status["runs"])),
        status["deadline"],
    )


def _pool_row(pool: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    oldest = min((entry["oldest"] for entry in pool["priorities"] if "oldest" in entry), default="")
    last = pool["callers"][0] if pool["callers"] else {"last": "", "caller": "nobody in the last ten days"}
    return (
        pool["taskQueueId"],
        str(pool["pendingTasks"]),
        str(pool["claimedTasks"]),
        _ago(oldest, now),
        str(len(pool["messages"]) + pool["hidden"]),
        _ago(last["last"], now),
        last["caller"],
    )


def _worker_row(worker: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    last = worker["recentTasks"][-1] if worker["recentTasks"] else None
    return (
        worker["caller"],
        worker["taskQueueId"],
        worker["method"],
        _ago(worker["last"], now),
        worker.get("quarantineUntil", "-"),
        f"{last['taskId']}/{last['runId']}" if last else "-",
    )


def _no_worker(pool: str | None, known: Iterable[Mapping[str, Any]]) -> str:
    if pool is None:
        return "No worker has called in the last ten days."
    names = [each["taskQueueId"] for each in known]
    near = [] if pool in names else get_close_matches(pool, names, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"No worker has called for {pool} in the last ten days.{meant}"


def _message_row(message: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    visible_in = message["visibleIn"]
    return (
        message.get("taskId", "unknown"),
        str(message.get("runId", "-")),
        message["priority"],
        f"in {duration_words(visible_in)}" if visible_in else "now",
        str(message["dequeueCount"]),
        f"{_ago(message['inserted'], now)} ago",
        message["messageId"],
    )


def _ago(time: str, now: datetime) -> str:
    return duration_words(max(0.0, (now - parse_time(time)).total_seconds())) if time else "-"
