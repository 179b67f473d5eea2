"""What each worker of a pool is doing: it is busy, idle, silent or quarantined."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.domain.call_statistics import Caller
from legacy_queue.services.inspection.pools import Pool

WORKER_STATES = ("busy", "idle", "silent", "quarantined")
_SILENT_AFTER = timedelta(minutes=5)  # an idle worker asks for work at least every 20 seconds
_SILENT_AFTER_UNSEEN = timedelta(hours=1)  # it polls Azure, and asks this server only for new signed URLs


@dataclass(frozen=True)
class InspectedWorker:
    """A worker, or a client that has asked for work and claimed for no worker yet.

    A signed URL names the client that got it, not the worker that polls with it. If a client has claimed for
    one worker, its polls are among that worker's calls. If it has claimed for several, it is the ``client``
    of each of them: nobody knows which of them polled.
    """

    task_queue_id: str
    caller: Caller
    client: Caller | None
    last_call: datetime  # of the worker or its client
    running: Sequence[str]  # taskIds
    state: str  # of WORKER_STATES


def workers_of(
    pool: Pool, running: Collection[str], now: datetime, *, sees_polls: bool
) -> Iterator[InspectedWorker]:
    """The workers of the pool, and the clients that have claimed for none. Reads nothing.

    ``running`` has the taskIds of all running tasks. ``sees_polls`` is as in ``silent_after``.
    """
    served = {caller.statistics.client for caller in pool.callers if caller.worker}
    clients = {caller.name: caller for caller in pool.callers if not caller.worker and caller.name in served}
    callers = [caller for caller in pool.callers if caller.name not in clients]
    claims = {caller.name: caller.worker.recent_claims if caller.worker else () for caller in callers}
    # of several workers that have claimed a task, the one that claimed its last run has it
    ordered = sorted((run_id, task_id, name) for name in claims for task_id, run_id in claims[name])
    holders = {task_id: name for _, task_id, name in ordered if task_id in running}
    for caller in callers:
        client = clients.get(caller.statistics.client)
        held = [task_id for task_id in dict(claims[caller.name]) if holders.get(task_id) == caller.name]
        last_call = max(each.last_call for each in (caller, client) if each)
        is_silent = now - last_call > silent_after(sees_polls)
        is_quarantined = caller.quarantined_until(now) is not None
        state = "quarantined" if is_quarantined else "busy" if held else "silent" if is_silent else "idle"
        yield InspectedWorker(pool.task_queue_id, caller, client, last_call, held, state)


def silent_after(sees_polls: bool) -> timedelta:
    """How long an idle worker may be silent. Unless the server ``sees_polls``, workers poll Azure."""
    return _SILENT_AFTER if sees_polls else _SILENT_AFTER_UNSEEN
