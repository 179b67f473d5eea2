"""Fills a server's storage for scripts/bench: with what the server stores for a task, under other taskIds.

It knows no layout: a task is run through the server, its rows are looked up by its taskId and inserted again.
"""

import base64
import binascii
import json
import re
from collections import defaultdict

from bench_load import CYCLE, BenchTask, Server, concurrently
from bench_storage import Row, Storage, account_signature

from legacy_queue.domain.ids import slugid

_AT_ONCE = 16
_CHUNK = 500  # tasks of which the rows of one partition are inserted together

Tables = dict[str, list[Row]]


async def fill_tasks(server: Server, tasks: int) -> None:
    """So many more resolved tasks; each is its own group unless the server's tasks name one."""
    pilot = server.new_task()
    for what in CYCLE:
        await server.call(what, 0, pilot)
    await server.probe.rest()
    storages = _storages(server)
    found = await _rows_of(storages[0], pilot.task_id)
    if not found:
        raise RuntimeError(
            "no row has the taskId in its key: scripts/bench_fill.py does not know this layout"
        )
    new = [slugid() for _ in range(tasks)]

    async def insert(slot: int, task_ids: list[str]) -> None:
        for table, rows in found.items():
            partitions: dict[str, list[Row]] = defaultdict(list)
            for task_id in task_ids:
                for row in rows:
                    copy = _replaced(row, pilot.task_id, task_id)
                    partitions[copy["PartitionKey"]].append(copy)
            for partition in partitions.values():
                await storages[slot].insert_all(table, partition)

    await concurrently(insert, _AT_ONCE, [new[start : start + _CHUNK] for start in range(0, tasks, _CHUNK)])
    for task_id in new[:: max(1, tasks // 10)]:  # the server knows them
        await server.call("status", 0, BenchTask({}, task_id))
    _close(storages)


async def fill_messages(server: Server, messages: int) -> None:
    """So many pending messages, of a worker type that asks for no work."""
    pilot = server.new_task(workerType="bench-backlog")
    await server.call("createTask", 0, pilot)
    storages = _storages(server)
    texts = [
        (queue, text)
        for queue in await storages[0].queues()
        for text in await storages[0].peek(queue)
        if pilot.task_id in text or pilot.task_id in _decoded(text)
    ]
    if not texts:
        raise RuntimeError(
            "no queue shows the task's message: scripts/bench_fill.py does not know this layout"
        )

    async def put(slot: int, number: int) -> None:
        await storages[slot].put(*texts[number % len(texts)])

    await concurrently(put, _AT_ONCE, range(messages))
    _close(storages)


def _storages(server: Server) -> list[Storage]:
    signature = account_signature()
    return [Storage(server.line["storage"], signature) for _ in range(_AT_ONCE)]


def _close(storages: list[Storage]) -> None:
    for storage in storages:
        storage.close()


async def _rows_of(storage: Storage, task_id: str) -> Tables:
    """The rows of each table that have the taskId in their key; storage holds little else yet."""
    found = {table: await storage.rows(table) for table in await storage.tables()}
    return {
        table: mine
        for table, rows in found.items()
        if (mine := [row for row in rows if task_id in row["PartitionKey"] + row["RowKey"]])
    }


def _replaced(row: Row, old: str, new: str) -> Row:
    """The row of another task; a taskId stands in text, and in the JSON of binary properties."""
    copy = json.loads(json.dumps(row).replace(old, new))
    for name, value in row.items():
        if row.get(f"{name}@odata.type") == "Edm.Binary":
            copy[name] = base64.b64encode(_decoded(value).replace(old, new).encode()).decode()
    return dict(copy)


def _decoded(text: str) -> str:
    """What the base64 holds, or an empty text."""
    if not re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", text):
        return ""
    try:
        return base64.b64decode(text).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
