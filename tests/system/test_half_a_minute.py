"""A server is killed after it wrote and before it published: the next publishes within half a minute."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass

import pytest
from azure.storage.queue import QueueServiceClient

from legacy_queue.local_processes.azurite import Azurite
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import Queue, definition, slugid
from .listeners import Gate, Listener, listening
from .processes import serve, wait_until

TYPE = "interrupted"  # worker type
AT_ONCE = 8


@dataclass(frozen=True)
class Cut:
    """A call that is cut short: the events before it, the state that it wrote, and its unpublished events."""

    before: Sequence[str]
    written: str
    unpublished: Sequence[str]


PENDING = ("defined", "pending 0")
CUTS = {
    "create": Cut((), "pending", PENDING),
    "define": Cut((), "unscheduled", ("defined",)),
    "schedule": Cut(("defined",), "pending", ("pending 0",)),
    "claim": Cut(PENDING, "running", ("running 0 one",)),
    "completed": Cut((*PENDING, "running 0 one"), "completed", ("completed 0 one", "group-resolved")),
    "cancel": Cut(PENDING, "exception", ("exception 0 canceled", "group-resolved")),
    "rerun": Cut((*PENDING, "exception 0 canceled", "group-resolved"), "pending", ("pending 1",)),
}


class Interrupted:
    """The calls, each on a task of its own: their preparation, and their beginning."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self._holder = queue, queue
        self.tasks = {name: slugid() for name in CUTS}
        self.dependent = slugid()  # of the completed task

    def prepare(self, pool: ThreadPoolExecutor) -> None:
        wait([pool.submit(self._put, name) for name in ("claim", "completed", "cancel", "rerun")])
        self._do("define", "schedule")
        self._queue.ask(
            "PUT", f"/task/{self.dependent}", definition(TYPE, dependencies=[self.tasks["completed"]])
        )
        claim = self._queue.claim_by_name(self.tasks["completed"], 0).json()
        self._holder = self._queue.with_credentials(claim["credentials"])
        self._do("cancel", "rerun")

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """Begin all calls; none is answered."""
        task_ids = self.tasks
        calls: list[Callable[[], object]] = [
            lambda: self._put("create"),
            lambda: self._do("define", "define"),
            lambda: self._do("schedule", "schedule"),
            lambda: self._queue.claim_by_name(task_ids["claim"], 0),
            lambda: self._holder.on_run((task_ids["completed"], 0), "completed"),
            lambda: self._do("cancel", "cancel"),
            lambda: self._do("rerun", "rerun"),
        ]
        for call in calls:
            pool.submit(call)

    def states(self, queue: Queue) -> dict[str, str | None]:
        states = {}
        for name, task_id in self.tasks.items():
            answer = queue.send("GET", f"/task/{task_id}/status")
            states[name] = answer.json()["status"]["state"] if answer.status_code == 200 else None
        return states

    def _put(self, name: str) -> None:
        self._queue.ask("PUT", f"/task/{self.tasks[name]}", definition(TYPE))

    def _do(self, verb: str, name: str) -> None:
        body = definition(TYPE) if verb == "define" else None
        self._queue.ask("POST", f"/task/{self.tasks[name]}/{verb}", body)


@dataclass(frozen=True)
class Story:
    """The calls, the queue of the next server, a listener, and its events before that server started."""

    calls: Interrupted
    queue: Queue
    listener: Listener
    before: Mapping[str, Sequence[str]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite, rabbitmq: RabbitMQ) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("half-a-minute")
    with closing(Gate(rabbitmq.url)) as gate, ThreadPoolExecutor(AT_ONCE) as pool:
        env = on_account(azurite, gate.url)
        with (
            serve(folder / "killed", env=env) as killed,
            listening(rabbitmq.url, killed.root_url) as listener,
        ):
            calls = Interrupted(as_root(killed))
            connect(as_root(killed), listener, gate, pool)
            calls.prepare(pool)
            listener.wait_for({calls.tasks[name]: cut.before for name, cut in CUTS.items()})
            gate.is_open.clear()
            calls.begin(pool)
            wait_until(
                lambda: calls.states(as_root(killed)) == {name: cut.written for name, cut in CUTS.items()}
            )
            killed.kill()
            gate.lose()
            assert waiting(azurite, env["LEGACY_QUEUE_QUEUE_PREFIX"]) == 0
            before = listener.received(calls.tasks.values())
            with serve(folder / "next", "--workers", "2", env=env) as server:
                yield Story(calls, as_root(server), listener, before)


def connect(queue: Queue, listener: Listener, gate: Gate, pool: ThreadPoolExecutor) -> None:
    """Wait until the server has all its connections, so that each call can hang on one of them."""

    def create(_: object = None) -> str:
        return queue.create(definition("early"))

    def publishes() -> bool:
        """Whether an event is published before the answer; a new server publishes older events first."""
        task_id = create()
        return listener.received([task_id]) == {task_id: list(PENDING)}

    def is_connected() -> bool:
        wait_until(publishes)
        gate.is_open.clear()
        calls = [pool.submit(create) for _ in range(AT_ONCE)]
        try:
            wait_until(lambda: gate.connections >= AT_ONCE or all(call.done() for call in calls))
        finally:
            gate.is_open.set()
        return all(call.result() for call in calls) and gate.connections >= AT_ONCE

    wait_until(is_connected)
    wait_until(publishes)


def waiting(azurite: Azurite, prefix: str) -> int:
    """The number of events that wait for the broker."""
    with QueueServiceClient.from_connection_string(
        azurite.connection_string, api_version="2021-12-02"
    ) as service:
        if f"{prefix}-events" not in [queue.name for queue in service.list_queues(prefix)]:
            return 0
        events = service.get_queue_client(f"{prefix}-events").get_queue_properties()
        return events.approximate_message_count or 0


def test_writes_of_a_killed_server_stand_although_their_events_were_not_published(story: Story) -> None:
    calls = story.calls
    assert calls.states(story.queue) == {name: cut.written for name, cut in CUTS.items()}
    assert story.before == {calls.tasks[name]: list(cut.before) for name, cut in CUTS.items()}


def test_unpublished_events_are_published_in_order(story: Story) -> None:
    events = {story.calls.tasks[name]: [*cut.before, *cut.unpublished] for name, cut in CUTS.items()}
    story.listener.wait_for({**events, story.calls.dependent: PENDING}, may_repeat=True)


def test_each_pending_run_has_a_message(story: Story) -> None:
    pending = {(story.calls.tasks["create"], 0), (story.calls.tasks["schedule"], 0)}
    pending |= {(story.calls.tasks["rerun"], 1), (story.calls.dependent, 0)}
    polled: set[tuple[str, int]] = set()

    def all_polled() -> bool:
        polled.update(message.run for message in story.queue.poll(TYPE, 32))
        return pending <= polled

    wait_until(all_polled)
