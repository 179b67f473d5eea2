"""legacy-queue status, tasks, pools, workers, peek, group, log, cancel, rerun and open."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

import click

from legacy_queue.cli.queue_options import (
    AnswerAndText,
    pool_argument,
    pool_option,
    queue_options,
    reporting,
)
from legacy_queue.cli.tables import table
from legacy_queue.config.values import matching
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.states import RESOLVED, UNRESOLVED
from legacy_queue.domain.times import duration_words, parse_time
from legacy_queue.history.words import explanation_lines, state_words, task_line
from legacy_queue.queue_client import QueueClient

_STATES = ("unresolved", "all", *UNRESOLVED, *RESOLVED)
_MAX_ITEMS = 1000
_WATCH_INTERVAL = 1  # seconds
_LOGS = "public/logs/"

task_argument = click.argument("task_id", metavar="TASK", type=matching(TASK_ID, "a taskId"))


class _WithId(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take an id that begins with a dash, as one of 64 made by old clients, for no option."""
        ids = [arg for arg in args if arg.startswith("-") and re.fullmatch(TASK_ID, arg)]
        moved = [*(arg for arg in args if arg not in ids), "--", *ids] if ids else args
        return super().parse_args(ctx, moved)


@click.command(cls=_WithId)
@task_argument
@click.option("--watch", is_flag=True, help="Print it again when that changes, until the task is resolved.")
@reporting
def status(queue: QueueClient, task_id: str, watch: bool) -> AnswerAndText:
    """Print what a task waits for and until when, and what happened to it.

    A queue with --control also has its requests, those that were refused too.
    """
    path = f"/inspect/v1/task/{task_id}"
    answer = queue.call("GET", path, expected="waitsFor")
    while watch and answer["waitsFor"][0]["situation"] != "resolved":
        if not click.get_current_context().params["as_json"]:  # which prints one document
            click.echo("\n".join([*explanation_lines(answer), ""]))
        known = _known(answer)
        while _known(answer) == known:
            time.sleep(_WATCH_INTERVAL)
            answer = queue.call("GET", path, expected="waitsFor")
    return answer, "\n".join(explanation_lines(answer))


@click.command()
@click.option("--state", type=click.Choice(_STATES), default="unresolved", help="Only these tasks.")
@pool_option
@click.option("--limit", type=click.IntRange(0), default=100, help="No more tasks; 0 for all.")
@reporting
def tasks(queue: QueueClient, state: str, pool: str | None, limit: int) -> AnswerAndText:
    """List tasks: the newest first if the storage knows it, else in the order of their taskIds."""
    answer = _listed(queue, "/inspect/v1/tasks", "tasks", limit, state=state, taskQueueId=pool)
    return answer, table(_TASK_HEADS, map(_task_row, answer["tasks"]), "There are no such tasks.")


@click.command()
@click.option("--limit", type=click.IntRange(0), default=100, help="No more pools; 0 for all.")
@reporting
def pools(queue: QueueClient, limit: int) -> AnswerAndText:
    """List the pools with tasks or callers: how many tasks, messages, and who asked last for work.

    LAST ASKED is how long ago a worker or client called pollTaskUrls, claimTask or claimWork, or polled a URL
    of this server; a poll of another server counts after half a minute. Polls of Azure and Azurite are not
    seen.
    """
    answer = _listed(queue, "/inspect/v1/pools", "pools", limit)
    heads = ("POOL", "PENDING", "RUNNING", "OLDEST", "MESSAGES", "LAST ASKED", "BY")
    rows = (_pool_row(pool, parse_time(answer["now"])) for pool in answer["pools"])
    return answer, table(heads, rows, "No pool has tasks or callers.")


@click.command()
@pool_option
@click.option("--limit", type=click.IntRange(0), default=1000, help="Of no more pools; 0 for all.")
@reporting
def workers(queue: QueueClient, pool: str | None, limit: int) -> AnswerAndText:
    """List the workers: their last call or poll, quarantine and last task.

    A client is listed itself as long as it has claimed for no worker, or for
    several: the queue cannot know which of them polled.
    """
    answer = _listed(queue, "/inspect/v1/pools", "pools", limit)
    found = [
        {"taskQueueId": each["taskQueueId"], **caller}
        for each in answer["pools"]
        if pool in (None, each["taskQueueId"])
        for caller in each["callers"]
    ]
    heads = ("WORKER", "POOL", "CALLED", "AGO", "QUARANTINED UNTIL", "LAST TASK")
    rows = (_worker_row(worker, parse_time(answer["now"])) for worker in found)
    return {"workers": found}, table(heads, rows, _no_worker(pool, answer["pools"]))


@click.command()
@pool_argument
@reporting
def peek(queue: QueueClient, pool: str) -> AnswerAndText:
    """Print the messages in the queues of a pool, named provisionerId/workerType. None is dequeued.

    Embedded storage lists hidden messages too, Azurite and Azure only visible ones, 32 of each queue.
    """
    answer = queue.call("GET", f"/inspect/v1/messages/{pool}", expected="messages")
    heads = ("TASK", "RUN", "PRIORITY", "VISIBLE", "DEQUEUED", "INSERTED", "MESSAGE")
    rows = (_message_row(message, parse_time(answer["now"])) for message in answer["messages"])
    text = table(heads, rows, f"No message is listed for {pool}.")
    left_out = f"\n{answer['hidden']} messages are not listed: hidden, or behind 32 others."
    return answer, text + left_out * bool(answer["hidden"])


@click.command(cls=_WithId)
@click.argument("task_group_id", metavar="GROUP", type=matching(TASK_ID, "a taskGroupId"))
@click.option("--limit", type=click.IntRange(0), default=1000, help="No more tasks; 0 for all.")
@reporting
def group(queue: QueueClient, task_group_id: str, limit: int) -> AnswerAndText:
    """List the tasks of a task group, and count them by state."""
    path = f"{queue.path}/task-group/{task_group_id}/list"
    answer = _listed(queue, path, "tasks", limit)
    statuses = [task["status"] for task in answer["tasks"]]
    counts = Counter(status["state"] for status in statuses)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    text = table(_TASK_HEADS, map(_task_row, statuses), "There is no task of this group.")
    return {**answer, "counts": counts}, "\n".join([text, counted] if counted else [text])


@click.command(cls=_WithId)
@task_argument
@click.option("--artifact", metavar="NAME", show_default=f"the first below {_LOGS}", help="Another artifact.")
@queue_options
def log(queue: QueueClient, task_id: str, artifact: str | None) -> None:
    """Print the log of a task's last run: its artifact, as it is."""
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


@click.command("open")
@click.option("--for", "minutes", type=click.IntRange(1, 60), default=5, help="Minutes.")
@reporting
def open_page(queue: QueueClient, minutes: int) -> AnswerAndText:
    """Print a link that signs a browser in to the queue's page; it is good for some minutes."""
    link = queue.page_link(timedelta(minutes=minutes))
    return {"link": link}, link


def _known(answer: Mapping[str, Any]) -> tuple[Any, ...]:
    """What changes if something happens to a task, and not only because time passes."""
    moments = [moment for moment in answer["story"] if moment["kind"] != "event"]  # as it is printed
    return answer["status"], moments, [wait["situation"] for wait in answer["waitsFor"]]


def _changed(queue: QueueClient, task_id: str, call: str) -> AnswerAndText:
    answer = queue.call("POST", f"{queue.path}/task/{task_id}/{call}", expected="status")
    return answer, task_line(answer["status"])


def _listed(queue: QueueClient, path: str, name: str, limit: int, **query: Any) -> dict[str, Any]:
    """The answer with up to ``limit`` items of the list, 0 for all. It comes in pages.

    What is left out is said on standard error.
    """
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
                cut = f"{limit} of {total} {name};" if total else f"The first {limit}; more may follow."
                click.echo(f"{cut} --limit 0 shows all.", err=True)
            return {**answer, name: items}


_TASK_HEADS = ("TASK", "POOL", "PRIORITY", "STATE", "RUNS", "DEADLINE")


def _task_row(status: Mapping[str, Any]) -> tuple[str, ...]:
    pool = f"{status['provisionerId']}/{status['workerType']}"
    runs = str(len(status["runs"]))
    return status["taskId"], pool, status["priority"], state_words(status), runs, status["deadline"]


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
