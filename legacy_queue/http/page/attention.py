"""What needs attention first: sentences, each with the page that shows it."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from legacy_queue.domain.times import duration_words
from legacy_queue.http.request_journal import SIZE
from legacy_queue.http.site import Site
from legacy_queue.services.inspection.explanation import never_polled
from legacy_queue.services.inspection.pools import Pool

_SOON = timedelta(minutes=1)  # after which a worker should have asked for a new task's type
_LATELY = timedelta(minutes=30)  # a worker that is busy asks again after its task
_OLD = timedelta(minutes=5)
_MAX_POOLS = 3  # of a kind
_MAX_COMPARED = 50  # pools, with the names that workers ask for

Hint = tuple[str, str]  # a sentence, and its page or ""


def attention(site: Site, pools: Sequence[Pool]) -> Iterator[Hint]:
    """The sentences, the worst first. A misspelled pool has few tasks."""
    services = site.services
    now = services.clock.now()
    if storage_warning := services.account.warning():
        yield storage_warning, ""
    if services.publisher.failure:
        yield "The broker is away: events are not published until it is back.", "/ready"
    waiting = [(now - pool.oldest, pool) for pool in pools if pool.oldest]
    asked = tuple(pool.task_queue_id for pool in pools if pool.callers)
    never = sorted([pool for waits, pool in waiting if not pool.callers and waits > _SOON], key=_pending)
    hints = [(never_polled(pool.task_queue_id, asked), _page(pool)) for pool in never[:_MAX_COMPARED]]
    hints.sort(key=lambda hint: "Workers ask" not in hint[0])
    yield from _first(hints, len(never), "have pending tasks, and no worker has asked for them", "asked")
    since = [
        (now - pool.callers[0].last_call, pool) for _, pool in waiting if pool.callers and not pool.running
    ]
    hints = [
        (f"No worker has asked for {pool.task_queue_id} for {_words(ago)}.", _page(pool))
        for ago, pool in since
        if services.peeking.sees_polls and ago > _LATELY
    ]
    yield from _first(
        hints, len(hints), "have pending tasks, and no worker has asked for half an hour", "asked"
    )
    old = sorted([(waits, pool.task_queue_id, _page(pool)) for waits, pool in waiting if pool.callers])[::-1]
    hints = [
        (f"A task of {name} is pending for {_words(waits)}.", at) for waits, name, at in old if waits > _OLD
    ]
    yield from _first(hints, len(hints), "have tasks that are pending for more than five minutes", "oldest")
    quarantined = sum(bool(each.quarantined_until(now)) for pool in pools for each in pool.callers)
    if quarantined:
        yield f"Quarantined workers: {quarantined}.", "/ui/workers?quarantined=true"
    refused = len(site.journal.requests(SIZE, None, {"endpoint": "claimTask", "failed": "true"}))
    if refused:
        yield f"Refused or failed claims: {refused}.", "/ui/requests?endpoint=claimTask&failed=true"


def _first(hints: Sequence[Hint], count: int, what: str, order: str) -> Iterator[Hint]:
    yield from hints[:_MAX_POOLS]
    if count > _MAX_POOLS:
        yield f"{count - _MAX_POOLS} more pools {what}.", f"/?sort={order}"


def _page(pool: Pool) -> str:
    return f"/ui/pools/{pool.task_queue_id}"


def _pending(pool: Pool) -> int:
    return pool.pending


def _words(duration: timedelta) -> str:
    return duration_words(duration.total_seconds())
