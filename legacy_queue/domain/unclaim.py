"""A claim taken back: its worker has hung up, and never hears of it."""

from dataclasses import replace
from datetime import datetime

from legacy_queue.domain.outcome import Outcome, Release, now_pending
from legacy_queue.domain.task import Task, Worker


def unclaim(task: Task, run_id: int, worker: Worker, taken_until: datetime) -> Outcome:
    """The run is pending as before, no retry is used up, and the message that was held is visible again.

    Only that very claim is taken back: where the run was resolved or reclaimed, nothing changes.
    Source: claimWork in design/api.md, a client that hangs up costs no claim.
    """
    last = task.last_run
    if last is None or last.run_id != run_id or last.state != "running":
        return Outcome(task)
    if (last.worker, last.taken_until) != (worker, taken_until):
        return Outcome(task)
    held = task.held
    task = task.with_last_run(state="pending", worker=None, taken_until=None, started=None)
    outcome = now_pending(replace(task, held=None))
    return replace(outcome, after=(Release(run_id, held),)) if held else outcome
