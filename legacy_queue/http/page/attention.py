"""What needs attention: a card for each cause, the gravest first, with a link to the page that shows it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from legacy_queue.domain.call_statistics import Caller
from legacy_queue.domain.times import age_words
from legacy_queue.http.request_journal import SIZE
from legacy_queue.http.site import Site
from legacy_queue.services.inspection.explanation import never_polled
from legacy_queue.services.inspection.pools import Pool
from legacy_queue.services.inspection.recent_events import LostClaim, RecentEvents

_SOON = timedelta(minutes=1)  # by then a worker should have asked for a new pool
_LATELY = timedelta(minutes=30)  # a worker that is busy asks again after its task
_OLD = timedelta(minutes=5)
_MAX_CARDS = 3  # of a kind
_MAX_COMPARED = 50  # pools and expired claims, with all workers


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
    return sorted(_cards(site, pools, recent), key=_gravest_first)


def _cards(site: Site, pools: Sequence[Pool], recent: RecentEvents) -> Iterator[Card]:
    services = site.services
    now, sees_polls = services.clock.now(), services.peeking.sees_polls
    if storage_warning := services.account.warning():
        yield Card("bad", "The storage needs attention", storage_warning)
    if services.publisher.failure:
        yield Card(
            "bad", "The broker is away", "The server publishes events again once it is back.", "/ready"
        )
    callers = {pool.task_queue_id: pool.callers for pool in pools}
    lost = [
        _lost(claim, callers.get(claim.task_queue_id, ()), now, sees_polls=sees_polls)
        for claim in recent.lost_claims[:_MAX_COMPARED]
    ]
    yield from _first(lost, "More expired claims", "", len(recent.lost_claims))
    waiting = sorted([pool for pool in pools if pool.oldest], key=lambda pool: (pool.oldest, pool.pending))
    yield from _without_workers(pools, waiting, now)
    open_count = sum(pool.pending + pool.running for pool in pools)
    # else events of the group may be missing here: those of other processes, or from before the start
    if recent.open_count == open_count and not services.processes.others():
        groups = [_stopped(group_id, states) for group_id, states in recent.stopped.items()]
        yield from _first(groups[::-1], "More stopped task groups")
    abandoned = [pool for pool in waiting if sees_polls and _has_no_worker_left(pool, now)]
    yield from _first(
        [_abandoned(pool, now) for pool in abandoned], "More pools without a worker left", "/?sort=asked"
    )
    named = {pool.task_queue_id for pool in abandoned}
    late = [pool for pool in waiting if pool.callers and _waits(pool, now) > _OLD]
    old = [_old(pool, now) for pool in late if pool.task_queue_id not in named]
    yield from _first(old, "More pools with tasks that wait for more than five minutes", "/?sort=oldest")
    yield from _of_workers(site, pools, now)


def _of_workers(site: Site, pools: Sequence[Pool], now: datetime) -> Iterator[Card]:
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


def _lost(claim: LostClaim, callers: Sequence[Caller], now: datetime, *, sees_polls: bool) -> Card:
    workers = [caller for caller in callers if caller.name == claim.worker]
    clients = {worker.statistics.client for worker in workers}
    later = [caller for caller in callers if caller.last_call > claim.time]
    gravity: Gravity = "warn"
    if any(caller in workers for caller in later):
        since = "It has asked for work since."
    elif any(not caller.worker and caller.name in clients for caller in later):
        since = "Its client has polled since, for this worker or another."
    else:
        gravity = "bad"
        since = "It has not asked for work since."
        if not sees_polls:
            since = "It has not claimed since. This server does not see its polls of Azure."
    text = f"{_age(claim.time, now)} ago, in {claim.task_queue_id}. {since}"
    return Card(gravity, f"{claim.worker} let its claim expire", text, f"/ui/tasks/{claim.task_id}")


def _stopped(group_id: str, states: Mapping[str, int]) -> Card:
    ended = " and ".join(f"{states[state]:,} {state}" for state in ("failed", "exception") if states[state])
    text = f"{group_id}: {ended}, {states['unscheduled']:,} unscheduled, none pending or running."
    return Card("bad", "A task group has stopped", text, f"/ui/groups/{group_id}")


def _abandoned(pool: Pool, now: datetime) -> Card:
    text = f"The last worker asked {_age(pool.callers[0].last_call, now)} ago. {_tasks(pool)}"
    return Card("warn", f"{pool.task_queue_id} has no worker left", text, _page(pool))


def _old(pool: Pool, now: datetime) -> Card:
    waited = age_words(_waits(pool, now).total_seconds())
    return Card("warn", f"A task of {pool.task_queue_id} has waited for {waited}", _tasks(pool), _page(pool))


def _has_no_worker_left(pool: Pool, now: datetime) -> bool:
    return bool(pool.callers and not pool.running and now - pool.callers[0].last_call > _LATELY)


def _waits(pool: Pool, now: datetime) -> timedelta:
    return now - (pool.oldest or now)


def _age(time: datetime, now: datetime) -> str:
    return age_words((now - time).total_seconds())


def _tasks(pool: Pool) -> str:
    return f"{_count(pool.pending, 'task is', 'tasks are')} pending, {pool.running:,} running."


def _count(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _first(cards: Sequence[Card], what: str, href: str = "", count: int = 0) -> Iterator[Card]:
    """The first of the gravest cards, and one for the rest."""
    cards = sorted(cards, key=_gravest_first)
    yield from cards[:_MAX_CARDS]
    rest = (count or len(cards)) - _MAX_CARDS
    if rest > 0:
        yield Card(cards[_MAX_CARDS].gravity, f"{what}: {rest:,}", "", href)


def _gravest_first(card: Card) -> int:
    return _GRAVITIES.index(card.gravity)


def _page(pool: Pool) -> str:
    return f"/ui/pools/{pool.task_queue_id}"
