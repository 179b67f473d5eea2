"""``LegacyQueue``: a queue for a test, with a method for everything that a test does with it."""

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

__tracebackhide__ = True  # so that a traceback ends at the test's own call

_CLIENT_ID = "legacy-queue-testing"  # next to the clients that a test configures
_OLDEST = "0" * 16  # an event id that comes before all others
_TIMEOUT = 10.0  # seconds


class LegacyQueue:
    """A queue for tests, and a context manager. The server runs inside its ``with``: use the members there.

    ``settings`` are the settings of the server, with ``_`` in place of ``-``: ``claim_timeout="30s"`` (or a
    timedelta), ``clients={"worker": {"accessToken": ..., "scopes": [...]}}``. If the server refuses a
    setting, the start of the ``with`` raises ServerFailed with the server's sentence.
    """

    def __init__(self, storage: str = "memory", **settings: Any) -> None:
        self._settings = {"storage": storage, **settings}
        self._started: tuple[ServerProcess, QueueClient] | None = None
        self._faults: list[ActiveFault] = []
        self._pools: set[str] = set()  # the pools that the test has used
        self._claimed: set[str] = set()  # the taskIds that this object has claimed, and the pools

    def __enter__(self) -> Self:
        if self._started:
            raise RuntimeError("the server is already running: a fixture has entered its queue")
        settings = dict(self._settings)
        own = {"accessToken": slugid() + slugid(), "scopes": ["*"]}
        if isinstance(clients := settings.get("clients"), Mapping):
            settings["clients"] = {**clients, _CLIENT_ID: own}
        process = ServerProcess(settings)
        generated = {"clientId": _CLIENT_ID, "accessToken": own["accessToken"]}
        self._credentials: dict[str, str] = process.ready.get("credentials", generated)
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
        """The base URL for clients of the old API: the root URL plus ``/v1``."""
        return str(self._process.ready["baseUrl"])

    @property
    def credentials(self) -> dict[str, str]:
        """The ``clientId`` and ``accessToken`` of a client that may do everything."""
        return dict(self._credentials)

    @property
    def env(self) -> dict[str, str]:
        """The variables by which Taskcluster's programs find the queue: URL, certificates, credentials."""
        return client_variables({**self._process.ready, "credentials": self._credentials})

    def client(self, **options: Any) -> Any:
        """A ``taskcluster.Queue`` of the installed package, old or new. ``options`` are passed on to it.

        Raises ImportError if the package is not installed.
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
        """Create a task and return its taskId.

        ``fields`` are fields of the definition, named as in Python: ``worker_type``, ``scopes``, ``payload``.
        Required fields have defaults. A time may be a datetime, or a timedelta that counts from the queue's
        time. ``body`` replaces the defaults; it is a definition in the form that createTask takes.
        """
        return self._create("PUT", "", task_id, body, fields)

    def define_task(
        self,
        *,
        task_id: str | None = None,
        body: Mapping[str, Any] | None = None,
        **fields: Unpack[TaskFields],
    ) -> str:
        """Create a task that stays unscheduled until ``schedule``, and return its taskId."""
        return self._create("POST", "/define", task_id, body, fields)

    def schedule(self, task_id: str) -> Status:
        """Call scheduleTask. Returns the task's status."""
        return self._change(task_id, "schedule")

    def cancel(self, task_id: str) -> Status:
        """Call cancelTask. Returns the task's status."""
        return self._change(task_id, "cancel")

    def rerun(self, task_id: str) -> Status:
        """Call rerunTask. Returns the task's status."""
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
        """Quarantine a worker: it gets no task until then. A timedelta counts from the queue's time.

        Raises RequestFailed with status 404 if the worker has not called claimTask or claimWork yet.
        """
        pool = self._pool(worker_type, provisioner_id, task_queue_id).split("/")
        path = f"/v1/provisioners/{pool[0]}/worker-types/{pool[1]}/workers/{worker_group}/{worker_id}"
        self._http.call("PUT", path, {"quarantineUntil": wire_value(until, self.now())})

    def task(self, task_id: str) -> dict[str, Any]:
        """The task's definition."""
        definition: dict[str, Any] = self._http.call("GET", f"/v1/task/{task_id}")
        return definition

    def status(self, task_id: str) -> Status:
        """The task's status, with ``state``, ``runs``, ``retriesLeft`` and so on."""
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
        """Claim a task as a worker does. Returns None if there is no work.

        The protocol ``claimwork`` calls claimWork. ``draft`` and ``deployed`` poll the Azure queues and then
        call claimTask: ``draft`` sends the id, receipt and signature of the message, and ``deployed`` deletes
        the message afterwards.
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
        """Do what ``run.report`` does. Returns the task's status."""
        return run.report(resolution, reason)

    def wait_for(
        self, task_id: str, state: State, timeout: float = _TIMEOUT, *, skip: bool = False
    ) -> Status:
        """Wait until the task is in this state, and return its status.

        It follows the events, for up to ``timeout`` seconds of real time, and then raises TimeoutError. If
        the task is resolved in another state, it raises AssertionError at once. Both say what happened to the
        task.

        With ``skip``, whenever no worker is at work, it moves the clock to the next time at which something
        is due for the task, or for a task that this one depends on. A worker is at work if it has claimed one
        of these tasks, or asks for work in the pool of a task whose message is visible. The claims of this
        object do not count.
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
        """Wait for the first event of the exchange since the last reset, or after the event ``after``.

        ``exchange`` is a name such as ``task-completed``. ``routing_key`` is a pattern as in the binding of
        an AMQP queue. Waits for up to ``timeout`` seconds of real time, and then raises TimeoutError as
        ``wait_for`` does.
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
        """The events since the last reset, in order. Each has ``id exchange routingKey routes payload``."""
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
        """The messages in the pool's Azure queues, without dequeuing any. Azurite lists only visible ones.

        Each has ``taskId``, ``runId``, ``priority``, ``dequeueCount`` and so on. ``visibleIn`` is in seconds;
        0 means that the message is visible.
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
        """Put a message that should not exist into a queue. It is visible immediately. Returns its messageId.

        A ``poisoned`` message names no task. The others name the task: a ``forged`` one is signed with
        another secret, a ``foreign`` one is in a pool that is not the task's, and a ``doubled`` one is a
        second message.
        """
        pool = self._pool(worker_type, provisioner_id, task_queue_id)
        of_task = {"taskId": task_id} if task_id else {}
        body = {"kind": kind, "priority": priority, **of_task}
        return str(self._http.call("POST", f"/control/v1/messages/{pool}", body)["messageId"])

    def requests(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last requests since the last reset, the oldest first. Requests on signed URLs are included."""
        answer = self._http.call("GET", "/control/v1/requests", limit=limit)
        return list(answer["requests"])

    def now(self) -> datetime:
        """The queue's time."""
        return parse_time(self._http.call("GET", "/control/v1/clock")["now"])

    def advance(self, duration: Duration) -> datetime:
        """Move the queue's clock forward by ``"21m"``, a timedelta, or seconds. Returns the queue's new time.

        When it returns, everything that became due has happened, and its events are published. Raises
        RequestFailed with status 409 if the clock of the storage cannot be moved.
        """
        return self._move_clock(advance=_duration(duration))

    def freeze(self) -> datetime:
        """Stop the queue's clock, so that only ``advance`` moves it. Returns the queue's time."""
        return self._move_clock(freeze=True)

    def release(self) -> datetime:
        """Let the queue's clock run again, from the time it shows. Returns the queue's time."""
        return self._move_clock(release=True)

    def fault(self, endpoint: str, **fields: Unpack[FaultFields]) -> ActiveFault:
        """Make requests to ``endpoint`` fail: a method of the API, or ``azure.receive``, ``azure.delete``,
        ``upload``.

        One of these happens, after ``delay`` if that is given:

        - ``status``, with ``message``: the answer is this error;
        - ``drop``: the connection is closed ``"before"`` or ``"after"`` the change is stored;
        - ``sas``: signed URLs are ``"expired"``, or expire in this duration;
        - ``double``, ``lose``, ``stale``: a message is delivered twice, not at all, or with a bad receipt.

        You can limit the fault to requests about a ``task``, to those of a ``worker``
        (``"<workerGroup>/<workerId>"``), and to the first ``times`` requests. With a ``probability`` and a
        ``seed``, it happens only to some of them. The fault ends when its ``remove`` is called, at the end of
        its ``with``, or at the next reset. If no request has met it, the end of the ``with``, the reset and
        the end of the queue warn FaultNeverFired.
        """
        wanted: dict[str, Any] = {"endpoint": endpoint}
        value: Any
        for name, value in fields.items():
            if value is not None and value is not False:  # not `if value`: a seed may be 0
                is_time = name in ("sas", "delay")
                wanted["taskId" if name == "task" else name] = _duration(value) if is_time else value
        caller = sys._getframe(1)
        fault = ActiveFault(self._http, wanted, (caller.f_code.co_filename, caller.f_lineno))
        self._faults.append(fault)
        return fault

    def check_faults(self) -> None:
        """Warn FaultNeverFired, once, about each fault in force that no request has met."""
        counted = [fault for fault in self._faults if not fault._is_removed and not fault._is_warned_of]
        unfired = [fault for fault in counted if not fault.fired]
        for fault in unfired:  # mark all of them first, because a warning may be an error
            fault._is_warned_of = True
        for fault in unfired:
            fault._warn()

    def reset(self) -> None:
        """Empty the queue: its tasks, messages, events, artifacts, workers, clock, faults and journal."""
        self._process.check()  # for a moment, a child of a killed server may still answer
        self.check_faults()
        self._http.call("POST", "/control/v1/reset")
        self._forget()
        self._process.skip_log()

    def summary(self, limit: int = 20) -> str:
        """The text that a failed test's report shows.

        It has the last requests in ``limit`` lines, the tasks, their messages, the faults, and the server's
        warnings.
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
        """Follow the events of the server's only process for so many seconds, even if there is a broker."""
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
        """When something is due next for a task or its dependencies; None while a worker is at work."""
        dues: list[str] = []
        task_ids = [task_id]
        for each in task_ids:  # the list grows in this loop
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
        """The error for a wait that ended by ``end``: a timeout, or a stream that the server has closed."""
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
    """The duration as text for the server. A number is in seconds."""
    if isinstance(duration, str):
        return duration
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return f"{round(seconds * 1000)}ms"
