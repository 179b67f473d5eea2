"""Every use case on one storage: what a server process consists of, beside its ways in and its threads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from legacy_queue.domain.timers import CLAIMS, DEADLINES, RESOLVED
from legacy_queue.ports import Broker, Clock, Storage
from legacy_queue.services import Services
from legacy_queue.services.announcer import Announcer
from legacy_queue.services.background import Background
from legacy_queue.services.changes import Changes
from legacy_queue.services.chores import Chore, Chores
from legacy_queue.services.claims import ClaimRules, Claims
from legacy_queue.services.dependencies import Dependencies
from legacy_queue.services.event_feed import EventFeed
from legacy_queue.services.groups import Groups
from legacy_queue.services.listing import Listing
from legacy_queue.services.polling import Polling
from legacy_queue.services.resolvers import Resolvers
from legacy_queue.services.sweeper import Sweeper
from legacy_queue.services.tasks import Tasks
from legacy_queue.services.timers import Timers
from legacy_queue.services.watcher import Watcher
from legacy_queue.services.work_messages import WorkMessages

# How long a queue of timers is not looked at, at most, while nothing happens
_IDLE = {CLAIMS: timedelta(seconds=15), DEADLINES: timedelta(seconds=30), RESOLVED: timedelta(seconds=5)}
_SWEEP_EVERY, _EXPIRE_EVERY = timedelta(minutes=10), timedelta(hours=1)
_EVENTS_READABLE = timedelta(hours=1)  # where there is no broker


@dataclass(frozen=True)
class Rules:
    """``sas_life``: how long poll URLs are good. ``poll_visibility``: how long a polled message is invisible.
    ``resolves``: whether timers, sweeping and expiry are this process's business.
    """

    claims: ClaimRules
    sas_life: timedelta
    poll_visibility: timedelta
    resolves: bool = True


@dataclass(frozen=True)
class Core:
    """``watchers`` by queue, empty where another process resolves; so is ``chores`` None."""

    services: Services
    timers: Timers
    announcer: Announcer
    watchers: Mapping[str, Watcher] = field(default_factory=dict)
    chores: Chores | None = None

    def background(self) -> Background:
        """The threads of a process that serves or resolves."""
        return Background(self.timers, self.announcer, tuple(self.watchers.values()), self.chores)


def build_core(storage: Storage, broker: Broker | None, clock: Clock, rules: Rules) -> Core:
    """Nothing is sent to storage or broker yet."""
    announcer = Announcer(broker, storage.event_log, storage.own_queues, storage.turns, clock)
    event_feed = EventFeed(broker, storage.event_log)
    announcer.logged = event_feed.wake
    timers = Timers(storage.own_queues, storage.tasks, clock)
    messages = WorkMessages(storage.work_queues, clock, rules.claims.secrets)
    changes = Changes(storage.tasks, messages, timers, announcer)
    dependencies = Dependencies(storage.tasks, storage.dependencies, changes, clock)
    groups = Groups(storage.groups, announcer)
    services = Services(
        tasks=Tasks(storage.tasks, groups, dependencies, changes, timers, clock),
        claims=Claims(changes, messages, clock, rules.claims),
        polling=Polling(storage.work_queues, clock, rules.sas_life, rules.poll_visibility),
        listing=Listing(storage.tasks, storage.groups, storage.dependencies),
        event_feed=event_feed,
    )
    if not rules.resolves:
        return Core(services, timers, announcer)
    resolvers = Resolvers(storage.tasks, changes, messages, dependencies, groups, announcer, clock)
    watchers = {
        name: Watcher(name, storage.own_queues, handle, clock, _IDLE[name])
        for name, handle in resolvers.handlers.items()
    }
    timers.expect = lambda name, time: watchers[name].expect(time)
    timers.hand = watchers[RESOLVED].hand
    sweeper = Sweeper(
        storage.tasks, storage.groups, changes, messages, dependencies, groups, announcer, clock
    )
    chores = Chores(_chores(storage, sweeper, clock), storage.turns, clock)
    return Core(services, timers, announcer, watchers, chores)


def _chores(storage: Storage, sweeper: Sweeper, clock: Clock) -> list[Chore]:
    def expire(name: str) -> Chore:
        expiring = storage.expiring[name]
        return Chore(
            f"expire-{name}",
            _EXPIRE_EVERY,
            lambda after, limit, _: expiring.remove_expired(clock.now(), after, limit),
        )

    return [
        Chore("sweep-tasks", _SWEEP_EVERY, sweeper.sweep_tasks),
        Chore("sweep-groups", _SWEEP_EVERY, sweeper.sweep_groups),
        *(expire(name) for name in storage.expiring),
        Chore(
            "trim-events",
            _EXPIRE_EVERY,
            lambda _after, _limit, _: storage.event_log.trim(clock.now() - _EVENTS_READABLE),
        ),
    ]
