"""``LegacyQueue``: a queue for a test, with a method for each thing that a test does."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib import import_module
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast

from legacy_queue.credentials import Credentials
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.states import RESOLVED
from legacy_queue.domain.times import parse_time
from legacy_queue.history.words import explanation_lines
from legacy_queue.queue_client import EVENTS_LOST, QueueClient
from legacy_queue.testing.active_fault import ActiveFault
from legacy_queue.testing.claimed_run import (
    ClaimedRun,
    ClaimProtocol,
    Resolution,
    claim_work,
    poll,
    require_one_of,
)
from legacy_queue.testing.definitions import WORKER_GROUP, WORKER_ID, definition, pool_name, wire_value
from legacy_queue.testing.server_process import ServerProcess, client_variables
from legacy_queue.testing.summary import history_page, summarize
from legacy_queue.testing.wire_types import (
    Duration,
    FaultFields,
    InspectedMessage,
    Priority,
    QueueEvent,
    State,
    Status,
    TaskFields,
    Time,
)

__tracebackhide__ = True  # a traceback ends at the test's call

_CLIENT_ID = "legacy-queue-testing"  # beside the clients that a test configures
_OLDEST = "0" * 16  # an event id before all events
_TIMEOUT = 10.0  # seconds


class LegacyQueue:
    """A context manager: the server runs within the ``with``. All other members need the server.

    ``settings`` are the server's settings, named with ``_``: ``claim_timeout="30s"`` (or a timedelta),
    ``clients={"worker": {"accessToken": ..., "scopes": [...]}}``. On entering, settings that the server
    refuses raise ServerFailed with its sentence.
    """

    def __init__(self, storage: str = "memory", **settings: Any) -> None:
        self._settings = {"storage": storage, **settings}
        self._started: tuple[ServerProcess, QueueClient] | None = None
        self._faults: list[ActiveFault] = []
        self._pools: set[str] = set()  # that the test has used
        self._claimed: set[str] = set()  # taskIds and pools that this object has claimed

    def __enter__(self) -> Self:
        if self._started:
            raise RuntimeError("the server is running already: a fixture has entered its queue")
        settings = dict(self._settings)
        own = {"accessToken": slugid() + slugid(), "scopes": ["*"]}
        if isinstance(clients := settings.get("clients"), Mapping):
            settings["clients"] = {**clients, _CLIENT_ID: own}
        process = ServerProcess(settings)
        made_up = {"clientId": _CLIENT_ID, "accessToken": own["accessToken"]}
        self._credentials: dict[str, str] = process.ready.get("credentials", made_up)
        verify: bool | str = process.ready.get("ca", {}).get("bundle") or settings.get("tls_cert") or True
        client = Credentials.from_wire(self._credentials)
        self._started = process, QueueClient(process.ready["baseUrl"], client, verify, process.check)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.check_faults()
        finally:
            self._forget()
            self._process.stop()
            self._started = None

    @property
    def root_url(self) -> str:
        """The root URL for today's clients: ``http://127.0.0.1:<port>``."""
        return str(self._process.ready["rootUrl"])

    @property
    def base_url(self) -> str:
        """The base URL for clients of the old API: the root URL and ``/v1``."""
        return str(self._process.ready["baseUrl"])

    @property
    def credentials(self) -> dict[str, str]:
        """``clientId`` and ``accessToken`` of a client that may do everything."""
        return dict(self._credentials)

    @property
    def env(self) -> dict[str, str]:
        """The variables with the queue's URL, trust and credentials, for Taskcluster's programs."""
        return client_variables({**self._process.ready, "credentials": self._credentials})

    def client(self, **options: Any) -> Any:
        """A ``taskcluster.Queue`` of the installed package, old or new, with further ``options`` of it.

        Raises ImportError where it is not installed.
        """
        try:
            queue = import_module("taskcluster").Queue
        except ImportError as error:
            raise ImportError("client() needs Taskcluster's client: pip install taskcluster") from error
        is_old = "baseUrl" in queue.classOptions
        where = {"baseUrl": self.base_url} if is_old else {"rootUrl": self.root_url}
        return queue({**where, "credentials": self.credentials, **options})

    def create_task(
        self,
        *,
        task_id: str | None = None,
        body: Mapping[str, Any] | None = None,
        **fields: Unpack[TaskFields],
    ) -> str:
        """Create a task; its taskId.

        ``fields`` are fields of the definition, in Python's case: ``worker_type``, ``scopes``, ``payload``.
        Required fields have defaults. A time may be a datetime, or a timedelta from the queue's time on.
        ``body``, a definition as createTask takes it, replaces the defaults.
        """
        return self._create("PUT", "", task_id, body, fields)

    def define_task(
        self,
        *,
        task_id: str | None = None,
        body: Mapping[str, Any] | None = None,
        **fields: Unpack[TaskFields],
    ) -> str:
        """As ``create_task``, and the task waits for ``schedule``."""
        return self._create("POST", "/define", task_id, body, fields)

    def schedule(self, task_id: str) -> Status:
        """Call scheduleTask; the task's status."""
        return self._change(task_id, "schedule")

    def cancel(self, task_id: str) -> Status:
        """Call cancelTask; the task's status."""
        return self._change(task_id, "cancel")

    def rerun(self, task_id: str) -> Status:
        """Call rerunTask; the task's status."""
        return self._change(task_id, "rerun")

    def quarantine(
        self,
        until: Time = timedelta(days=1),
        *,
        worker_type: str | None = None,
        provisioner_id: str | None = None,
        task_queue_id: str | None = None,
        worker_group: str = WORKER_GROUP,
        worker_id: str = WORKER_ID,
    ) -> None:
        """Give a worker no task until then; a timedelta is from the queue's time on.

        Raises RequestFailed with status 404 if it has not called claimTask or claimWork yet.
        """
        pool = self._pool(worker_type, provisioner_id, task_queue_id).split("/")
        path = f"/v1/provisioners/{pool[0]}/worker-types/{pool[1]}/workers/{worker_group}/{worker_id}"
        self._http.call("PUT", path, {"quarantineUntil": wire_value(until, self.now())})

    def task(self, task_id: str) -> dict[str, Any]:
        """The task's definition."""
        definition: dict[str, Any] = self._http.call("GET", f"/v1/task/{task_id}")
        return definition

    def status(self, task_id: str) -> Status:
        """The task's status: ``state``, ``runs``, ``retriesLeft`` ..."""
        status: Status = self._http.call("GET", f"/v1/task/{task_id}/status")["status"]
        return status

    def claim(
        self,
        worker_type: str | None = None,
        *,
        provisioner_id: str | None = None,
        task_queue_id: str | None = None,
        protocol: ClaimProtocol = "claimwork",
        worker_group: str = WORKER_GROUP,
        worker_id: str = WORKER_ID,
    ) -> ClaimedRun | None:
        """Claim a task as a worker does; None if there is no work.

        ``claimwork`` calls claimWork. ``draft`` and ``deployed`` poll the Azure queues and then call
        claimTask: ``draft`` sends the message's id, receipt and signature, ``deployed`` deletes the message
        afterwards.
        """
        require_one_of(ClaimProtocol, "protocol", protocol)
        pool = self._pool(worker_type, provisioner_id, task_queue_id)
        worker = {"workerGroup": worker_group, "workerId": worker_id}
        if protocol == "claimwork":
            run = claim_work(self._http, pool, worker)
        else:
            run = poll(self._http, pool, worker, is_draft=protocol == "draft")
        self._claimed |= {pool, *([run.task_id] if run else [])}
        return run

    def report(self, run: ClaimedRun, resolution: Resolution, reason: str | None = None) -> Status:
        """As ``run.report``; the task's status."""
        return run.report(resolution, reason)

    def wait_for(
        self, task_id: str, state: State, timeout: float = _TIMEOUT, *, skip: bool = False
    ) -> Status:
        """Wait until the task's state is ``state``; its status.

        Follows the events, for ``timeout`` seconds of real time. Raises TimeoutError; AssertionError at once
        if the task is resolved otherwise. Both say what happened to the task.

        With ``skip``, the clock moves to the next moment that is due for the task, or for a task that it
        depends on, and again, while no worker is at work: while none but ``claim`` has claimed one of these
        tasks, or asks for their pools.
        """
        require_one_of(State, "state", state)
        with self._follow(timeout, routingKey=f"primary.{task_id}.#") as events:
            status = self.status(task_id)
            try:
                while status["state"] != state:
                    if status["state"] in RESOLVED:
                        raise AssertionError(f"task {task_id} is not {state}:\n{self._story(task_id)}")
                    if skip and (due := self._next_due(task_id)):
                        self.advance(max(due - self.now(), timedelta(milliseconds=1)))
                        status = self.status(task_id)
                    else:
                        status = next(events)["payload"].get("status", status)
            except (TimeoutError, StopIteration) as end:
                raise self._timed_out(f"task {task_id} was not {state}", timeout, end) from None
            return status

    def wait_for_event(
        self,
        exchange: str,
        routing_key: str = "#",
        timeout: float = _TIMEOUT,
        after: QueueEvent | None = None,
    ) -> QueueEvent:
        """The first event of the exchange since the last reset, or after the event ``after``.

        ``exchange`` is a name such as ``task-completed``, ``routing_key`` a pattern as in a binding of a
        queue. Waits for the event, for ``timeout`` seconds of real time. Raises TimeoutError, as
        ``wait_for``.
        """
        last_id = after["id"] if after else _OLDEST
        query = {"exchange": exchange, "routingKey": routing_key, "lastEventId": last_id}
        with self._follow(timeout, **query) as events:
            try:
                return next(events)
            except (TimeoutError, StopIteration) as end:
                what = f"there was no event {exchange} {routing_key}"
                raise self._timed_out(what, timeout, end) from None

    def events(self, exchange: str | None = None, routing_key: str = "#") -> list[QueueEvent]:
        """The events since the last reset, in order: ``id exchange routingKey routes payload``."""
        query = {"routingKey": routing_key, "lastEventId": _OLDEST, "follow": "false"}
        query |= {"exchange": exchange} if exchange else {}
        with self._follow(_TIMEOUT, **query) as events:
            return list(events)

    def messages(
        self,
        worker_type: str | None = None,
        *,
        provisioner_id: str | None = None,
        task_queue_id: str | None = None,
    ) -> list[InspectedMessage]:
        """The messages in the pool's Azure queues: ``taskId runId priority visibleIn dequeueCount`` ...

        ``visibleIn`` is in seconds; 0 means visible. No message is dequeued. Azurite lists only visible
        messages.
        """
        pool = self._pool(worker_type, provisioner_id, task_queue_id)
        messages: list[InspectedMessage] = self._http.call("GET", f"/inspect/v1/messages/{pool}")["messages"]
        return messages

    def put_message(
        self,
        kind: Literal["poisoned", "forged", "foreign", "doubled"],
        task_id: str | None = None,
        *,
        worker_type: str | None = None,
        provisioner_id: str | None = None,
        task_queue_id: str | None = None,
        priority: Priority = "lowest",
    ) -> str:
        """Put a message that should not be there, visible at once; its messageId.

        ``poisoned`` is no message of a task. The others are of the task: ``forged`` is signed with another
        secret, ``foreign`` goes to a pool that is not the task's, ``doubled`` is a second message.
        """
        pool = self._pool(worker_type, provisioner_id, task_queue_id)
        of_task = {"taskId": task_id} if task_id else {}
        body = {"kind": kind, "priority": priority, **of_task}
        return str(self._http.call("POST", f"/control/v1/messages/{pool}", body)["messageId"])

    def requests(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last requests since the last reset, the oldest first, also on signed URLs."""
        answer = self._http.call("GET", "/control/v1/requests", limit=limit)
        return list(answer["requests"])

    def now(self) -> datetime:
        """The queue's time."""
        return parse_time(self._http.call("GET", "/control/v1/clock")["now"])

    def advance(self, duration: Duration) -> datetime:
        """Move the queue's clock forward, by ``"21m"``, a timedelta, or seconds; the queue's new time.

        Returns when all that became due has happened, events included. Raises RequestFailed with status 409
        if the storage's clock cannot be moved.
        """
        return self._move_clock(advance=_duration(duration))

    def freeze(self) -> datetime:
        """Stop the queue's clock: only ``advance`` moves it. The queue's time."""
        return self._move_clock(freeze=True)

    def release(self) -> datetime:
        """Let the queue's clock run on from its time. The queue's time."""
        return self._move_clock(release=True)

    def fault(self, endpoint: str, **fields: Unpack[FaultFields]) -> ActiveFault:
        """Cause a fault in requests to ``endpoint``: a name of the reference, or ``azure.receive``,
        ``azure.delete``, ``upload``.

        Effects: an answer with ``status`` (and ``message``), a closed connection (``drop``, before or after
        the change is stored), URLs that are ``"expired"`` or expire in a duration (``sas``), a message that
        is delivered twice (``double``), not at all (``lose``), or with an invalid receipt (``stale``).
        ``delay`` comes first. Which requests: those of a ``task``, those of a ``worker``
        (``"<workerGroup>/<workerId>"``), the first ``times``, each with a ``probability`` and a ``seed``.
        ``remove``, the end of a ``with`` or the next reset ends the fault; if no request has met it, that
        warns FaultNeverFired.
        """
        wanted: dict[str, Any] = {"endpoint": endpoint}
        value: Any
        for name, value in fields.items():
            if value is not None and value is not False:  # a seed may be 0
                is_time = name in ("sas", "delay")
                wanted["taskId" if name == "task" else name] = _duration(value) if is_time else value
        caller = sys._getframe(1)
        fault = ActiveFault(self._http, wanted, (caller.f_code.co_filename, caller.f_lineno))
        self._faults.append(fault)
        return fault

    def check_faults(self) -> None:
        """Warn FaultNeverFired, once, of each fault in force that no request has met."""
        counted = [fault for fault in self._faults if not fault._is_removed and not fault._is_warned_of]
        unfired = [fault for fault in counted if not fault.fired]
        for fault in unfired:  # all of them first: a warning may be an error
            fault._is_warned_of = True
        for fault in unfired:
            fault._warn()

    def reset(self) -> None:
        """Empty the server: tasks, messages, events, artifacts, workers, clock, faults and journal."""
        self._process.check()  # a child of a killed server may answer for a moment
        self.check_faults()
        self._http.call("POST", "/control/v1/reset")
        self._forget()
        self._process.skip_log()

    def summary(self, limit: int = 20) -> str:
        """The section of a failed test's report: the last ``limit`` requests, unresolved tasks, messages,
        the faults and the server's warnings.
        """
        return summarize(self._http, self._pools, self._process, limit)

    def life_page(self) -> str:
        """An HTML page that shows what happened to each task, as a picture."""
        return history_page(self._http)

    @property
    def _process(self) -> ServerProcess:
        return self._running[0]

    @property
    def _http(self) -> QueueClient:
        return self._running[1]

    @property
    def _running(self) -> tuple[ServerProcess, QueueClient]:
        if self._started is None:
            raise RuntimeError("the server is not running: use LegacyQueue() in a with statement")
        return self._started

    @contextmanager
    def _follow(self, timeout: float, **query: str) -> Iterator[Iterator[QueueEvent]]:
        """Follow the events of the server's only process, with a broker too, for so many seconds."""
        with self._http.events("/inspect/v1/events", monotonic() + timeout, **query) as events:
            yield (
                cast(QueueEvent, {"id": event.get("id", ""), **json.loads(event["data"])})
                for event in events
                if "data" in event and event.get("event") != EVENTS_LOST
            )

    def _forget(self) -> None:
        for fault in self._faults:
            fault._is_removed = True
        self._faults.clear()
        self._pools.clear()
        self._claimed.clear()

    def _create(
        self, method: str, call: str, task_id: str | None, body: Mapping[str, Any] | None, fields: TaskFields
    ) -> str:
        task_id = task_id or slugid()
        sent = definition(self.now(), fields, body)
        self._pool(sent.get("workerType"), sent.get("provisionerId"), sent.get("taskQueueId"))
        self._http.call(method, f"/v1/task/{task_id}{call}", sent)
        return task_id

    def _change(self, task_id: str, change: str) -> Status:
        status: Status = self._http.call("POST", f"/v1/task/{task_id}/{change}")["status"]
        return status

    def _next_due(self, task_id: str) -> datetime | None:
        """When something is due next for a task or one that it depends on; None while a worker is at work."""
        dues: list[str] = []
        task_ids = [task_id]
        for each in task_ids:  # it grows
            explained = self._http.call("GET", f"/inspect/v1/task/{each}")
            waits = {wait["situation"]: wait for wait in explained["waitsFor"]}
            if "claimed" in waits and each not in self._claimed:
                return None
            status = explained["status"]
            pool = f"{status['provisionerId']}/{status['workerType']}"
            is_asked_for = "never-polled" not in waits and pool not in self._claimed
            if is_asked_for and waits.keys() & {"visible", "behind"}:
                return None
            dues += [wait["until"] for wait in waits.values() if "until" in wait]
            if "blocked" in waits:
                dependencies = self.task(each)["dependencies"]
                task_ids += [other for other in dependencies if other not in task_ids]
        return parse_time(min(dues)) if dues else None

    def _story(self, task_id: str) -> str:
        return "\n".join(explanation_lines(self._http.call("GET", f"/inspect/v1/task/{task_id}")))

    def _timed_out(self, what: str, timeout: float, end: Exception) -> TimeoutError:
        """The error of a wait that ``end`` ended: a timeout, or a stream that the server closed."""
        is_over = isinstance(end, TimeoutError)
        when = f"within {timeout:g} s" if is_over else "before the queue was reset, or the server ended"
        return TimeoutError(f"{what} {when}\n{self.summary(10)}")

    def _pool(self, worker_type: str | None, provisioner_id: str | None, task_queue_id: str | None) -> str:
        pool = pool_name(worker_type, provisioner_id, task_queue_id)
        self._pools.add(pool)
        return pool

    def _move_clock(self, **move: Any) -> datetime:
        return parse_time(self._http.call("POST", "/control/v1/clock", move)["now"])


def _duration(duration: Duration) -> str:
    """The duration as text for the server; a number is in seconds."""
    if isinstance(duration, str):
        return duration
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return f"{round(seconds * 1000)}ms"
