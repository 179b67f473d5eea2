"""``/inspect/v1`` tells a person what the queue is doing, and why. It changes nothing.

Its answers name clients and workers, so it needs a scope of its own. Source: docs/reference/inspect.md.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from legacy_queue.domain.call_statistics import Caller
from legacy_queue.domain.ids import TASK_QUEUE_ID
from legacy_queue.domain.messages import Peeked, PeekedMessage
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.paging import PAGED, page_answer
from legacy_queue.http.site import Site
from legacy_queue.services.inspection.explanation import Wait
from legacy_queue.services.inspection.pools import InspectedPool
from legacy_queue.services.tasks.listing import Wanted

SCOPE = "queue:inspect"
SEARCHED = r"[\[{].*"  # positions in a search, of each storage
inspect_endpoint = partial(endpoint, scopes=SCOPE, service="inspect", has_prefix=False, is_recorded=False)


@inspect_endpoint("GET", "/inspect/v1/task/<taskId>", "Inspect Task", output="inspect-task-response")
def inspect_task(call: Call) -> Reply:
    """Get what a task waits for and until when, and what happened to it.

    ``waitsFor`` begins with the cause that you should act on first. ``story`` lists what happened, in order.
    Each entry has ``time``, ``what`` (a sentence) and ``kind``. With --control, the task's requests (also the
    refused ones) and the moves of the clock are entries too. An ``event`` is listed if this server process
    has published it since its start and still has it in memory.

    ``message`` says where the task's message is from then on:

    - ``visible``: workers can receive it;
    - ``hidden``: a poll has hidden it until ``hiddenUntil``;
    - ``held``: the claim has hidden it until ``takenUntil``;
    - ``gone``: it is deleted.

    Without --control, or if workers poll Azure, only ``held`` and ``gone`` are known.
    """
    return explained(call.authorize(), call.task_id)


@inspect_endpoint(
    "GET",
    "/inspect/v1/tasks",
    "Inspect Tasks",
    query=(*PAGED, "state", "taskQueueId"),
    output="inspect-tasks-response",
)
def inspect_tasks(call: Call) -> Reply:
    """List the statuses of all unresolved tasks, each with its ``name`` and when it was ``created``.

    With ``state`` it lists the tasks in that state, or all tasks for ``all``. With ``taskQueueId`` it lists
    only tasks of that pool. On embedded storage the newest task is first; other storages list tasks in the
    order of their taskIds. A page may be empty and still not be the last.
    """
    wanted = Wanted(call.query.get("state", "unresolved"), call.query.get("taskQueueId", ""))
    services = call.authorize().services
    now = {"now": format_time(services.clock.now())}
    return page_answer(call, "tasks", SEARCHED, partial(services.listing.search, wanted), _task_wire, now)


@inspect_endpoint("GET", "/inspect/v1/pools", "Inspect Pools", query=PAGED, output="inspect-pools-response")
def inspect_pools(call: Call) -> Reply:
    """List all pools that have unresolved tasks, or that somebody asked for in the last ten days.

    Each has its tasks and messages by priority, and its callers, with the latest call first. ``total`` is the
    number of pools on all pages.
    """
    services = call.authorize().services
    now = {"now": format_time(services.clock.now())}
    return page_answer(call, "pools", TASK_QUEUE_ID, services.pools.list, pool_wire, now)


@inspect_endpoint(
    "GET",
    "/inspect/v1/messages/<provisionerId>/<workerType>",
    "Inspect Messages",
    output="inspect-messages-response",
)
def inspect_messages(call: Call) -> Reply:
    """List the messages in the queues of a pool, highest priority first. It does not receive them.

    Embedded storage shows all messages. Azurite and Azure show the first 32 visible messages of each
    priority. ``hidden`` counts the messages that are not shown.
    """
    services = call.authorize().services
    now = format_time(services.clock.now())
    return {
        "taskQueueId": "/".join(call.pool),
        "now": now,
        **_messages(services.peeking.messages(*call.pool)),
    }


def explained(site: Site, task_id: str) -> Mapping[str, Any]:
    """Returns the answer of inspectTask. Raises ResourceNotFound for an unknown task."""
    services = site.services
    task, found = services.wait_reasons.of(task_id)
    requests = site.journal.requests_of(task_id) if site.control else None
    return {
        "status": task.status(),
        **_named(task),
        "now": format_time(services.clock.now()),
        "waitsFor": [_wait(wait) for wait in found],
        "story": [moment.to_wire() for moment in services.histories.of(task, requests)],
    }


def _task_wire(task: Task) -> Mapping[str, Any]:
    """A task in the answer of inspectTasks."""
    return {**task.status(), **_named(task)}


def _named(task: Task) -> Mapping[str, str]:
    wire = task.definition.wire
    return {"name": wire["metadata"]["name"], "created": wire["created"]}


def _wait(wait: Wait) -> Mapping[str, str]:
    until = {"until": format_time(wait.until)} if wait.until else {}
    return {"situation": wait.situation, "sentence": wait.sentence, **until}


def pool_wire(pool: InspectedPool) -> Mapping[str, Any]:
    """A pool in the answer of inspectPools."""
    return {
        "taskQueueId": pool.task_queue_id,
        "policy": pool.policy,
        "pendingTasks": pool.pending,
        "claimedTasks": pool.running,
        "priorities": [
            {
                "priority": priority,
                "pendingTasks": pending.count,
                "claimedTasks": running.count,
                **({"oldest": format_time(pending.oldest)} if pending.oldest else {}),
            }
            for priority, (pending, running) in pool.tasks.items()
        ],
        **_messages(pool.queue),
        "callers": [caller_wire(caller) for caller in pool.callers],
    }


def caller_wire(caller: Caller) -> Mapping[str, Any]:
    """A worker or a client in the answer of inspectPools."""
    until = caller.worker.quarantine_until if caller.worker else None
    claims = caller.worker.recent_claims if caller.worker else ()
    return {
        "caller": caller.name,
        "method": caller.statistics.last_method,
        "last": format_time(caller.last_call),
        **({"quarantineUntil": format_time(until)} if until else {}),
        "recentTasks": [{"taskId": task_id, "runId": run_id} for task_id, run_id in claims],
    }


def _messages(peeked: Peeked) -> Mapping[str, Any]:
    return {"messages": [_message(message) for message in peeked.messages], "hidden": peeked.hidden}


def _message(message: PeekedMessage) -> Mapping[str, Any]:
    run = {"taskId": message.run[0], "runId": message.run[1]} if message.run else {}
    return {
        **run,
        "priority": message.priority,
        "visibleIn": message.visible_in.total_seconds(),
        "dequeueCount": message.dequeue_count,
        "messageId": message.message_id,
        "inserted": format_time(message.inserted),
    }
