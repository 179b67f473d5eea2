"""What needs a look first: sentences, each with the page that shows it."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from legacy_queue.domain.times import duration_words
from legacy_queue.http.request_journal import SIZE, Journal
from legacy_queue.services.inspection.inspection import Pool

_LATELY = timedelta(minutes=30)  # a worker that is busy asks again after its task
_OLD = timedelta(minutes=5)
_MAX_POOLS = 3  # of a kind
_SIMILAR = 0.8  # of difflib's ratio

Look = tuple[str, str]  # a sentence, and a page


def attention(
    pools: Sequence[Pool], now: datetime, journal: Journal, broker_failure: str, low_space: str
) -> Iterator[Look]:
    """The sentences, the worst first."""
    if low_space:
        yield low_space, "/ui/tasks"
    if broker_failure:
        yield "The broker is away: events are not published until it is back.", "/ui/tasks?state=unresolved"
    pending = sorted([pool for pool in pools if pool.pending], key=lambda pool: -pool.pending)
    asked = [pool.task_queue_id for pool in pools if pool.callers and not (pool.pending or pool.running)]

    def unasked(pool: Pool) -> str:
        if pool.callers:
            return f"No worker has asked for {pool.task_queue_id} for {ago(pool.callers[0].last_call)}."
        near = get_close_matches(pool.task_queue_id, asked, 1, _SIMILAR)
        more = f" Workers ask for {near[0]}." if near else ""
        return f"No worker has asked for {pool.task_queue_id} in ten days, and tasks are pending.{more}"

    def oldest(pool: Pool) -> str:
        return f"A task of {pool.task_queue_id} is pending for {ago(pool.oldest or now)}."

    def ago(time: datetime) -> str:
        return duration_words((now - time).total_seconds())

    never = [pool for pool in pending if not pool.callers]
    not_lately = [pool for pool in pending if pool.callers and not pool.running and _is_late(pool, now)]
    yield from _of_pools([*never, *not_lately], unasked, "asked")
    old = [pool for pool in pending if pool.callers and now - (pool.oldest or now) > _OLD]
    yield from _of_pools(sorted(old, key=lambda pool: pool.oldest or now), oldest, "oldest")
    quarantined = sum(record.is_quarantined(now) for pool in pools for record in pool.callers)
    if quarantined:
        yield f"Quarantined workers: {quarantined}.", "/ui/workers?quarantined=true"
    refused = len(journal.requests(SIZE, None, {"endpoint": "claimTask", "failed": "true"}))
    if refused:
        yield f"Refused or failed claims: {refused}.", "/ui/requests?endpoint=claimTask&failed=true"


def _is_late(pool: Pool, now: datetime) -> bool:
    return now - pool.callers[0].last_call > _LATELY


def _of_pools(pools: Sequence[Pool], sentence: Callable[[Pool], str], order: str) -> Iterator[Look]:
    for pool in pools[:_MAX_POOLS]:
        yield sentence(pool), f"/ui/pools/{pool.task_queue_id}"
    if more := len(pools[_MAX_POOLS:]):
        yield f"So it is with {more} more {'pool' if more == 1 else 'pools'}.", f"/?sort={order}"
