"""What needs attention: a card for each cause, the gravest first, with a link to the page that shows it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from legacy_queue.domain.times import age_words, duration_words
from legacy_queue.http.request_journal import SIZE
from legacy_queue.http.site import Site
from legacy_queue.services.inspection.explanation import never_polled
from legacy_queue.services.inspection.pools import Pool
from legacy_queue.services.inspection.recent_events import LostClaim, RecentEvents

_SOON = timedelta(minutes=1)  # by then a worker should have asked for a new pool
_LATELY = timedelta(minutes=30)  # a worker that is busy asks again after its task
_OLD = timedelta(minutes=5)
_MAX_CARDS = 3  # of a kind
_MAX_COMPARED = 50  # pools, with the names that workers ask for


Gravity = Literal["bad", "warn", "info"]
_GRAVITIES: Sequence[Gravity] = ("bad", "warn", "info")


class Card(NamedTuple):
    """What is wrong, the facts, and the page that shows more, "" if there is none."""

    gravity: Gravity
    title: str
    text: str
    href: str = ""


def attention(site: Site, pools: Sequence[Pool], recent: RecentEvents) -> list[Card]:
    """The cards. Of pools without workers, the one with the fewest tasks is first: it may be misspelled."""
    return sorted(_cards(site, pools, recent), key=lambda card: _GRAVITIES.index(card.gravity))


def _cards(site: Site, pools: Sequence[Pool], recent: RecentEvents) -> Iterator[Card]:
    services = site.services
    now = services.clock.now()
    if storage_warning := services.account.warning():
        yield Card("bad", "The storage needs attention", storage_warning)
    if services.publisher.failure:
        yield Card(
            "bad", "The broker is away", "The server publishes events again once it is back.", "/ready"
        )
    yield from _first([_lost(claim, pools, now) for claim in recent.lost_claims], "More expired claims")
    waiting = sorted([pool for pool in pools if pool.oldest], key=lambda pool: (pool.oldest, pool.pending))
    yield from _without_workers(pools, waiting, now)
    if not services.processes.others():  # else events of the group may be missing here
        groups = [_stopped(group_id, states) for group_id, states in recent.stopped.items()]
        yield from _first(groups[::-1], "More stopped task groups")
    abandoned = [pool for pool in waiting if services.peeking.sees_polls and _has_no_worker_left(pool, now)]
    yield from _first(
        [_abandoned(pool, now) for pool in abandoned], "More pools without a worker left", "/?sort=asked"
    )
    named = {pool.task_queue_id for pool in abandoned}
    late = [pool for pool in waiting if pool.callers and _waits(pool, now) > _OLD]
    old = [_old(pool, now) for pool in late if pool.task_queue_id not in named]
    yield from _first(old, "More pools with tasks that wait for more than five minutes", "/?sort=oldest")
    quarantined = sum(bool(each.quarantined_until(now)) for pool in pools for each in pool.callers)
    if quarantined:
        title = f"{_count(quarantined, 'worker is', 'workers are')} in quarantine"
        why = "The queue gives no tasks to workers in quarantine."
        yield Card("warn", title, why, "/ui/workers?workerState=quarantined")
    refused = site.journal.requests(SIZE, None, {"endpoint": "claimTask", "failed": "true"})
    if refused:
        title = f"{_count(len(refused), 'claim was', 'claims were')} refused or failed"
        why = f"The last one: {refused[-1]['status']} {refused[-1].get('code', '')}"
        yield Card("info", title, why, "/ui/requests?endpoint=claimTask&failed=true")


def _without_workers(pools: Sequence[Pool], waiting: Sequence[Pool], now: datetime) -> Iterator[Card]:
    asked = tuple(pool.task_queue_id for pool in pools if pool.callers)
    never = [pool for pool in waiting if not pool.callers and _waits(pool, now) > _SOON]
    never.sort(key=lambda pool: pool.pending)
    sentences = [(never_polled(pool.task_queue_id, asked), pool) for pool in never[:_MAX_COMPARED]]
    sentences.sort(key=lambda each: "Workers ask" not in each[0])
    cards = [Card("bad", f"{pool.task_queue_id} has no workers", why, _page(pool)) for why, pool in sentences]
    yield from _first(cards, "More pools without workers", "/?sort=asked", len(never))


def _lost(claim: LostClaim, pools: Sequence[Pool], now: datetime) -> Card:
    called = any(
        caller.name == claim.worker and caller.last_call > claim.time
        for pool in pools
        for caller in pool.callers
        if pool.task_queue_id == claim.task_queue_id
    )
    since = "It has called again since." if called else "It has not called since."
    text = f"{age_words((now - claim.time).total_seconds())} ago, in {claim.task_queue_id}. {since}"
    return Card(
        "warn" if called else "bad",
        f"{claim.worker} let its claim expire",
        text,
        f"/ui/tasks/{claim.task_id}",
    )


def _stopped(group_id: str, states: Mapping[str, int]) -> Card:
    ended = " and ".join(f"{states[state]:,} {state}" for state in ("failed", "exception") if states[state])
    text = f"{group_id}: {ended}, {states['unscheduled']:,} unscheduled, none pending or running."
    return Card("bad", "A task group has stopped", text, f"/ui/groups/{group_id}")


def _abandoned(pool: Pool, now: datetime) -> Card:
    asked = duration_words((now - pool.callers[0].last_call).total_seconds())
    text = f"The last worker asked {asked} ago. {_tasks(pool)}"
    return Card("warn", f"{pool.task_queue_id} has no worker left", text, _page(pool))


def _old(pool: Pool, now: datetime) -> Card:
    waits = duration_words(_waits(pool, now).total_seconds())
    return Card("warn", f"A task of {pool.task_queue_id} has waited for {waits}", _tasks(pool), _page(pool))


def _has_no_worker_left(pool: Pool, now: datetime) -> bool:
    return bool(pool.callers and not pool.running and now - pool.callers[0].last_call > _LATELY)


def _waits(pool: Pool, now: datetime) -> timedelta:
    return now - (pool.oldest or now)


def _tasks(pool: Pool) -> str:
    return f"{_count(pool.pending, 'task is', 'tasks are')} pending, {pool.running:,} running."


def _count(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _first(cards: Sequence[Card], what: str, href: str = "", count: int = 0) -> Iterator[Card]:
    """The first cards, and one for the rest."""
    yield from cards[:_MAX_CARDS]
    rest = (count or len(cards)) - _MAX_CARDS
    if rest > 0:
        yield Card(cards[0].gravity, f"{what}: {rest:,}", "", href)


def _page(pool: Pool) -> str:
    return f"/ui/pools/{pool.task_queue_id}"
