"""Makes the services of a process, each one once, from what it needs."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from legacy_queue.ports import Broker, Clock, Waiter
from legacy_queue.services.artifacts.artifacts import Artifacts
from legacy_queue.services.artifacts.objects import Objects
from legacy_queue.services.artifacts.uploads import Uploads
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.claim_work.claim_work import ClaimWork
from legacy_queue.services.claim_work.offer_watch import OfferWatch
from legacy_queue.services.claim_work.work_poller import WorkPoller
from legacy_queue.services.concurrency import Threads
from legacy_queue.services.control.clock_control import ClockControl
from legacy_queue.services.control.clock_mover import ClockMover
from legacy_queue.services.events.event_buffer import EventBuffer
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.events.event_streams import EventStreams
from legacy_queue.services.events.stream_admission import StreamAdmission
from legacy_queue.services.inspection.migration_report import MigrationReport
from legacy_queue.services.inspection.peeking import Peeking
from legacy_queue.services.inspection.pools import Pools
from legacy_queue.services.inspection.task_histories import TaskHistories
from legacy_queue.services.inspection.wait_reasons import WaitReasons
from legacy_queue.services.process.background import Background, Ending, PeriodicAct
from legacy_queue.services.process.ledger import Ledger
from legacy_queue.services.process.liveness import BEAT
from legacy_queue.services.process.offers import Offers
from legacy_queue.services.process.processes import Processes
from legacy_queue.services.recovery.advance import Advance
from legacy_queue.services.recovery.job_definitions import RESOLVERS, Intervals, PageStep, periodic_jobs
from legacy_queue.services.recovery.periodic_jobs import PeriodicJobs
from legacy_queue.services.recovery.resolver import Resolver
from legacy_queue.services.recovery.sweeper import Sweeper
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.services.tasks.claims import Claims
from legacy_queue.services.tasks.dependencies import Dependencies
from legacy_queue.services.tasks.group_changes import GroupChanges
from legacy_queue.services.tasks.groups import Groups
from legacy_queue.services.tasks.listing import Listing
from legacy_queue.services.tasks.lost_messages import LostMessages
from legacy_queue.services.tasks.task_queues import TaskQueues
from legacy_queue.services.tasks.tasks import Tasks
from legacy_queue.services.tasks.work_messages import WorkMessages
from legacy_queue.services.workers.buffered_rows import BufferedRows
from legacy_queue.services.workers.polling import Polling
from legacy_queue.services.workers.recorded_calls import RecordedCalls
from legacy_queue.services.workers.workers import Workers
from legacy_queue.stores import ClientRow, Expiring, Storage, WorkerRow


class Services:
    """The services of one process, on one storage and one broker."""

    def __init__(
        self,
        storage: Storage,
        broker: Broker | None,
        clock: Clock,
        waiter: Waiter,
        settings: ServiceSettings,
        threads: Threads = ThreadPoolExecutor,
    ) -> None:
        """Make the services. Nothing is sent to storage or broker yet.

        ``broker`` is None if the settings name none. ``threads`` makes the thread pools for concurrent calls.
        """
        tasks = storage.tasks
        self.account = storage.account
        self.clock = clock
        self.waiter = waiter
        # set when the process ends
        self.stopping = Event()
        self.gate = BackgroundGate()
        self.event_buffer = EventBuffer(clock.now)
        admission = StreamAdmission(settings.max_streams)
        self.event_streams = EventStreams(self.event_buffer, admission, waiter, self.stopping)
        self.publisher = EventPublisher(broker, self.event_buffer, is_todays=settings.has_todays_events)
        self.ledger = Ledger(clock)
        self.processes = Processes(storage.processes, tasks, storage.groups, self.ledger, clock)
        offers = Offers(self.processes, clock) if settings.announces_offers else None
        self.poller = WorkPoller(storage.work_queues, clock, waiter, self.gate, settings.max_polls, offers)
        self.offer_watch = OfferWatch(self.poller, clock, self.account.version, offers)

        messages = WorkMessages(storage.work_queues, clock, settings.secrets, self.poller.on_offer)
        changes = Changes(tasks, messages, self.processes, self.ledger, self.publisher, clock)
        dependencies = Dependencies(tasks, storage.dependencies, changes, threads)
        self.groups = Groups(storage.groups, tasks, self.publisher, clock)
        self.group_changes = GroupChanges(self.groups, storage.groups, tasks, changes, clock, threads)
        self.tasks = Tasks(tasks, self.groups, dependencies, changes, clock, storage.artifacts)
        self.listing = Listing(tasks, storage.groups, storage.dependencies)
        self.task_queues = TaskQueues(tasks, self.listing, clock)

        rows = BufferedRows(storage.workers.load, WorkerRow.new, storage.workers, clock)
        self.workers = Workers(rows, storage.workers, clock)
        of_clients = BufferedRows(storage.workers.load_client, ClientRow.new, storage.workers, clock)
        self.calls = RecordedCalls(of_clients, storage.workers, self.workers, clock)
        self.claims = Claims(changes, messages, clock, settings, self.workers)
        self.claim_work = ClaimWork(
            self.poller,
            self.claims,
            self.workers,
            clock,
            settings.claim_work_wait,
            self.stopping,
            threads,
        )
        self.polling = Polling(
            storage.work_queues,
            clock,
            settings.sas_life,
            settings.poll_visibility,
            self.calls,
        )

        lost_messages = LostMessages(storage.work_queues, self.task_queues, settings.secrets, clock)
        self.peeking = Peeking(storage.work_queues, clock)
        self.pools = Pools(self.task_queues, self.calls, self.peeking, settings)
        self.wait_reasons = WaitReasons(
            self.tasks, dependencies, lost_messages, self.calls, self.peeking, clock, settings
        )
        self.histories = TaskHistories(self.event_buffer, self.peeking)
        self.migration_report = MigrationReport(self.calls, clock, settings)

        self.uploads = Uploads(
            storage.artifacts, storage.blobs, changes, clock, settings.secrets, settings.upload_url
        )
        self.artifacts = Artifacts(storage, self.uploads, changes, clock, settings.issuer)
        self.objects = Objects(storage.artifacts, storage.blobs, self.uploads, clock, settings.issuer)

        self.advance = Advance(storage.artifacts, changes, messages, dependencies, self.groups, clock)
        self.resolver = Resolver(
            self.processes, self.ledger, self.advance, self.groups, self.publisher, clock
        )
        sweeper = Sweeper(tasks, storage.groups, lost_messages, changes, self.advance, clock)
        jobs = periodic_jobs(
            sweep_tasks=sweeper.sweep_tasks,
            sweep_groups=sweeper.sweep_groups,
            expire_artifacts=self.artifacts.remove_expired,
            discard_blocks=self.artifacts.discard_blocks,
            expire={kind: self._removing(rows) for kind, rows in storage.expiring.items()},
        )
        self.periodic_jobs = PeriodicJobs(jobs, self.processes, clock, waiter)

    def _removing(self, rows: Expiring) -> PageStep:
        return lambda after, limit, _: rows.remove_expired(self.clock.now(), after, limit)

    def background(self, intervals: Intervals = Intervals()) -> Background:  # noqa: B008 - it is frozen
        """Returns the threads of the process. They are not started yet."""
        acts = [
            PeriodicAct(self.tick, intervals.tick),
            PeriodicAct(self.calls.flush, intervals.flush),
            # before the process is ready, because consumers bind to the exchanges as soon as it is
            PeriodicAct(self._check_broker, intervals.check, is_first=True),
            PeriodicAct(self._read_others, intervals.read),
        ]
        if self.offer_watch.interval:
            acts.append(PeriodicAct(self.offer_watch.check, self.offer_watch.interval))
        loops = [*[self.resolver.run] * RESOLVERS, self.periodic_jobs.run]
        ending = Ending(
            end_waits=(self.resolver.end_waits, self.poller.end, self.event_buffer.end_waits),
            last=(
                self.calls.note_counted,
                self.calls.flush,
                self.offer_watch.check,  # it announces the last messages
                self.processes.hand_over,
                self.publisher.close,
            ),
        )
        return Background(acts, loops, ending, self.stopping, self.gate, self.waiter)

    def _check_broker(self) -> None:
        if self.publisher.check():
            self.ledger.repeat_now()

    def tick(self) -> None:
        """Hand due tasks to the resolver, and show that this process is alive. Raises ServiceUnavailable."""
        self.ledger.fire()
        self.processes.tick()

    def _read_others(self) -> None:
        # while requests wait for work, ``offer_watch`` reads the same rows more often
        self.processes.read_others(BEAT)

    def clock_control(self) -> ClockControl:
        """Returns what moves the clock of these services."""
        clock_mover = ClockMover(
            self.processes, self.ledger, self.resolver, self.periodic_jobs, self.gate, self.stopping
        )
        return ClockControl(self.clock, clock_mover, self.poller.poll_now, self.histories.record_clock_move)
