"""The floor of scripts/bench: the storage operations of a task's life by the leanest client there is.

``CALLS`` and ``SHARED`` say which operations the server's calls come down to: when it changes, they do.
Source: the budget in docs/explanation/architecture.md#what-a-call-costs.
"""

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bench_load import Probe
from bench_storage import MessageLease, Row, Storage, account_signature
from served import Line

from legacy_queue.domain.ids import slugid

CALLS = {
    "createTask": ("insert task", "put work", "put timer", "insert member"),
    "status": ("get task",),
    "claimTask": ("put held", "merge task", "put timer"),
    "claimWork": ("receive work", "update held", "merge task", "put timer"),
    "reportCompleted": ("merge task", "delete held", "put timer"),
}
SHARED = {"put timer", "insert member"}  # concurrent calls have these in common

_TASKS, _GROUPS, _WORK, _TIMERS = "floortasks", "floorgroups", "floor-work", "floor-timers"
_TIME = "2026-12-01T00:00:00.000Z"
_HELD_FOR = 1200  # seconds


def _encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


_DEFINITION = _encoded({"payload": {}, "metadata": {"description": "x" * 400}, "scopes": [], "routes": []})
_MESSAGE = _encoded({"taskId": "A" * 22, "runId": 0, "signature": "h" * 44})
_TIMER = _encoded({"taskId": "A" * 22, "runId": 0, "armed": _TIME, "due": _TIME})


@dataclass
class FloorTask:
    """A row and the message that is held for it."""

    key: str = field(default_factory=slugid)
    etag: str = ""
    held: MessageLease = ("", "")

    @property
    def changing(self) -> Row:
        """What a transition writes."""
        runs = _encoded([{"runId": 0, "state": "running", "reasonCreated": "scheduled", "scheduled": _TIME}])
        row = {"PartitionKey": self.key, "RowKey": "task", "state": "running", "retriesLeft": 5}
        return {**row, "runs": runs, "runs@odata.type": "Edm.Binary"}

    @property
    def whole(self) -> Row:
        """What createTask writes."""
        definition = {"definition0": _DEFINITION, "definition0@odata.type": "Edm.Binary"}
        return {**self.changing, **definition, "expires": _TIME, "expires@odata.type": "Edm.DateTime"}


class Floor:
    """A side of the benchmark. ``share`` calls have a shared operation in common; 1: each does its own."""

    def __init__(self, line: Line, share: int) -> None:
        self.name = f"floor/{share}"
        self.probe = Probe(line, is_floor=True)
        self._endpoints, self._share = line["storage"], share
        self._signature = account_signature()
        self._clients: dict[int, Storage] = {}
        self._shared = dict.fromkeys(SHARED, 0)

    async def prepare(self) -> None:
        """Make its queues and tables, which no other side touches."""
        storage = self._client(0)
        for queue in (_WORK, _TIMERS):
            if queue not in await storage.queues():
                await storage.create_queue(queue)
        for table in (_TASKS, _GROUPS):
            if table not in await storage.tables():
                await storage.create_table(table)

    def new_task(self, **_: Any) -> FloorTask:
        return FloorTask()

    async def call(self, what: str, slot: int, task: FloorTask) -> None:
        """The operations of the call in turn."""
        storage = self._client(slot)
        for operation in CALLS[what]:
            if operation in SHARED:
                self._shared[operation] += 1
                if self._shared[operation] % self._share:
                    continue
            await _OPERATIONS[operation](storage, task)

    def _client(self, slot: int) -> Storage:
        if slot not in self._clients:
            self._clients[slot] = Storage(self._endpoints, self._signature)
        return self._clients[slot]


async def _insert_task(storage: Storage, task: FloorTask) -> None:
    task.etag = await storage.insert(_TASKS, task.whole)


async def _merge_task(storage: Storage, task: FloorTask) -> None:
    task.etag = await storage.merge(_TASKS, task.changing, task.etag)


async def _get_task(storage: Storage, task: FloorTask) -> None:
    await storage.get(_TASKS, task.changing)


async def _insert_member(storage: Storage, task: FloorTask) -> None:
    await storage.insert(_GROUPS, {"PartitionKey": task.key, "RowKey": "member"})


async def _put_work(storage: Storage, _task: FloorTask) -> None:
    await storage.put(_WORK, _MESSAGE)


async def _put_held(storage: Storage, task: FloorTask) -> None:
    task.held = await storage.put(_WORK, _MESSAGE, _HELD_FOR)


async def _put_timer(storage: Storage, _task: FloorTask) -> None:
    await storage.put(_TIMERS, _TIMER, _HELD_FOR)


async def _receive_work(storage: Storage, task: FloorTask) -> None:
    task.held = await storage.receive(_WORK, _HELD_FOR)


async def _update_held(storage: Storage, task: FloorTask) -> None:
    task.held = await storage.update(_WORK, task.held, _MESSAGE, _HELD_FOR)


async def _delete_held(storage: Storage, task: FloorTask) -> None:
    await storage.delete(_WORK, task.held)


_OPERATIONS: dict[str, Callable[[Storage, FloorTask], Awaitable[None]]] = {
    "insert task": _insert_task,
    "merge task": _merge_task,
    "get task": _get_task,
    "insert member": _insert_member,
    "put work": _put_work,
    "put held": _put_held,
    "put timer": _put_timer,
    "receive work": _receive_work,
    "update held": _update_held,
    "delete held": _delete_held,
}
