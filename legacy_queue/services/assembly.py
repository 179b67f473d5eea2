"""Builds the services of a process, on one storage and one broker."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

from legacy_queue.ports import Broker, Clock, ObjectStore
from legacy_queue.services import Services
from legacy_queue.services.advance import Advance
from legacy_queue.services.artifacts import Artifacts
from legacy_queue.services.changes import Changes
from legacy_queue.services.claim_work import ClaimWork
from legacy_queue.services.claims import Claims
from legacy_queue.services.concurrency import Threads
from legacy_queue.services.dependencies import Dependencies
from legacy_queue.services.event_feed import EventFeed
from legacy_queue.services.event_publisher import EventPublisher
from legacy_queue.services.gate import Gate
from legacy_queue.services.group_changes import GroupChanges
from legacy_queue.services.groups import Groups
from legacy_queue.services.listing import Listing
from legacy_queue.services.objects import Objects
from legacy_queue.services.pages import PageMemory
from legacy_queue.services.periodic_jobs import PeriodicJob, PeriodicJobs
from legacy_queue.services.poller_registry import PollerRegistry
from legacy_queue.services.polling import Polling
from legacy_queue.services.resolver import Resolver
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.sweeper import Sweeper
from legacy_queue.services.task_queues import TaskQueues
from legacy_queue.services.tasks import Tasks
from legacy_queue.services.timers import Timers
from legacy_queue.services.uploads import Uploads
from legacy_queue.services.usage import Usage
from legacy_queue.services.work_messages import WorkMessages
from legacy_queue.services.workers import Workers
from legacy_queue.stores import Storage

SWEEP_INTERVAL, EXPIRE_INTERVAL = timedelta(minutes=10), timedelta(hours=1)


def build_services(
    storage: Storage,
    broker: Broker | None,
    clock: Clock,
    settings: ServiceSettings,
    object_store: ObjectStore | None = None,
    threads: Threads = ThreadPoolExecutor,
) -> Services:
    """The services of one process. Sends nothing to storage or broker yet.

    ``broker`` and ``object_store`` (of s3 artifacts) are None where the settings name none. ``threads`` makes
    the executors of concurrent store calls.
    """
    event_feed = EventFeed(broker, clock.now, settings.max_streams)
    publisher = EventPublisher(broker, event_feed, is_todays=settings.has_todays_events)
    timers = Timers(storage.timers, clock, fires=settings.resolves)
    stopping, gate = Event(), Gate()
    pollers = PollerRegistry(
        storage.work_queues, clock, stopping, gate, storage.account.version, settings.max_polls
    )
    messages = WorkMessages(storage.work_queues, clock, settings.secrets, pollers.on_offer)
    changes = Changes(storage.tasks, messages, timers, publisher, clock)
    dependencies = Dependencies(storage.tasks, storage.dependencies, changes, threads)
    groups = Groups(storage.groups, storage.tasks, publisher, clock)
    usage = Usage(storage.usage, clock)
    workers = Workers(storage.workers, clock)
    claims = Claims(changes, messages, clock, settings, usage, workers)
    listing = Listing(storage.tasks, groups, storage.dependencies)
    uploads = Uploads(storage.artifacts, storage.blobs, changes, clock, settings.secrets, settings.upload_url)
    artifacts = Artifacts(storage, object_store, uploads, changes, clock, settings.issuer)
    claim_work = ClaimWork(
        pollers,
        claims,
        usage,
        workers,
        clock,
        settings.claim_work_wait,
        stopping,
        threads,
    )
    advance = Advance(
        storage.tasks, storage.artifacts, changes, messages, dependencies, groups, publisher, clock
    )
    periodic_jobs, task_queues = None, TaskQueues(storage.tasks, listing, clock)
    if settings.resolves:
        sweeper = Sweeper(
            storage.tasks, storage.groups, storage.work_queues, task_queues, timers, advance, clock
        )
        jobs = _periodic_jobs(storage, sweeper, artifacts, clock)
        periodic_jobs = PeriodicJobs(
            jobs, storage.leases, clock, settings.page_pause, settings.renew_interval
        )
    return Services(
        account=storage.account,
        clock=clock,
        tasks=Tasks(storage.tasks, groups, dependencies, changes, timers, clock, storage.artifacts),
        claims=claims,
        claim_work=claim_work,
        pollers=pollers,
        polling=Polling(
            storage.work_queues, clock, settings.sas_life, settings.poll_visibility, usage, workers
        ),
        task_queues=task_queues,
        groups=groups,
        group_changes=GroupChanges(groups, storage.groups, storage.tasks, changes, threads),
        listing=listing,
        page_memory=PageMemory(),
        event_feed=event_feed,
        usage=usage,
        workers=workers,
        artifacts=artifacts,
        uploads=uploads,
        objects=Objects(storage.artifacts, storage.blobs, uploads, clock, settings.issuer),
        timers=timers,
        advance=advance,
        resolver=Resolver(timers, advance, groups, clock),
        publisher=publisher,
        periodic_jobs=periodic_jobs,
        stopping=stopping,
        gate=gate,
    )


def _periodic_jobs(
    storage: Storage, sweeper: Sweeper, artifacts: Artifacts, clock: Clock
) -> list[PeriodicJob]:
    def expire(name: str) -> PeriodicJob:
        expiring = storage.expiring[name]
        return PeriodicJob(
            f"expire-{name}",
            EXPIRE_INTERVAL,
            lambda after, limit, _: expiring.remove_expired(clock.now(), after, limit),
        )

    return [
        PeriodicJob("sweep-tasks", SWEEP_INTERVAL, sweeper.sweep_tasks),
        PeriodicJob("sweep-groups", SWEEP_INTERVAL, sweeper.sweep_groups),
        PeriodicJob("expire-artifacts", EXPIRE_INTERVAL, artifacts.remove_expired),
        *(expire(name) for name in storage.expiring),
    ]
