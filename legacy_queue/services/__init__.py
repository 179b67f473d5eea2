"""The use cases: read, decide (domain), schedule, hold, write, publish. The caller is authorized already."""

from dataclasses import dataclass
from threading import Event

from legacy_queue.ports import Clock
from legacy_queue.ports.account import StorageAccount
from legacy_queue.services.advance import Advance
from legacy_queue.services.artifacts import Artifacts
from legacy_queue.services.background import Background, Pace
from legacy_queue.services.claim_work import ClaimWork
from legacy_queue.services.claims import Claims
from legacy_queue.services.clock_control import ClockControl
from legacy_queue.services.event_feed import EventFeed
from legacy_queue.services.event_publisher import EventPublisher
from legacy_queue.services.gate import Gate
from legacy_queue.services.group_changes import GroupChanges
from legacy_queue.services.groups import Groups
from legacy_queue.services.listing import Listing
from legacy_queue.services.objects import Objects
from legacy_queue.services.pages import PageMemory
from legacy_queue.services.periodic_jobs import PeriodicJobs
from legacy_queue.services.poller_registry import PollerRegistry
from legacy_queue.services.polling import Polling
from legacy_queue.services.resolver import Resolver
from legacy_queue.services.task_queues import TaskQueues
from legacy_queue.services.tasks import Tasks
from legacy_queue.services.timers import Timers
from legacy_queue.services.uploads import Uploads
from legacy_queue.services.usage import Usage
from legacy_queue.services.workers import Workers


@dataclass(frozen=True)
class Services:
    """The services of one process. A handler of an endpoint gets those that its signature names.

    ``periodic_jobs`` is None where another process resolves. ``stopping`` is set when the process ends.
    """

    account: StorageAccount
    clock: Clock
    tasks: Tasks
    claims: Claims
    claim_work: ClaimWork
    pollers: PollerRegistry
    polling: Polling
    task_queues: TaskQueues
    groups: Groups
    group_changes: GroupChanges
    listing: Listing
    page_memory: PageMemory
    event_feed: EventFeed
    usage: Usage
    workers: Workers
    artifacts: Artifacts
    uploads: Uploads
    objects: Objects
    timers: Timers
    advance: Advance
    resolver: Resolver
    publisher: EventPublisher
    periodic_jobs: PeriodicJobs | None
    stopping: Event
    gate: Gate

    def background(self, pace: Pace = Pace()) -> Background:  # noqa: B008 - it is frozen
        """The threads of the process, not started yet."""
        return Background(
            self.timers,
            self.resolver,
            self.publisher,
            self.periodic_jobs,
            (self.usage.flush, self.workers.flush),
            self.stopping,
            (self.pollers.wake, self.event_feed.end),
            self.workers.flush_new,
            pace,
            self.gate,
            self.pollers.watch if self.pollers.can_watch else None,
        )

    def clock_control(self) -> ClockControl:
        """Moves the clock of these services."""
        return ClockControl(
            self.clock,
            self.timers,
            self.resolver,
            self.periodic_jobs,
            self.gate,
            self.stopping,
            self.pollers.poll_now,
        )
