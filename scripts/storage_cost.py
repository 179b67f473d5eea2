"""What a storage operation costs the process that asks for it; run by scripts/storage-cost.

Each operation is done in rounds by our own connection and by the SDK's client, tuned as the server has it, on
the same Azurite, so that whatever else the machine does slows both. Only this process's CPU counts.
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from azure.core import MatchConditions
from azure.data.tables import TableClient, TableServiceClient, UpdateMode
from azure.storage.queue import QueueClient, QueueServiceClient

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.sdk import connect
from legacy_queue.adapters.azurite import Azurite
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import PARTITION, Change, Condition, Table, Value

_VALUES: dict[str, Value] = {"definition0": b"." * 1000, "state": "pending", "retriesLeft": 5, "runs": b"[]"}
_TEXT = "e" * 200
_HIDDEN = timedelta(minutes=5)
_BATCHES = (2, 16)

Operations = dict[str, Callable[[], Any]]


def lean(table: Table, queue: Queue, numbers: Iterator[int]) -> Operations:
    """The operations of the ports. What an operation needs is made by an earlier operation."""
    leases: list[Any] = []
    etag = table.put("one", "one", _VALUES)
    partition = [Condition(PARTITION, "eq", "page")]

    def insert() -> None:
        table.insert(f"lean{next(numbers)}", "task", _VALUES)

    def merge() -> None:
        nonlocal etag
        etag = table.merge("one", "one", {"state": "running"}, etag)

    def batch(size: int) -> None:
        changes = [Change("insert", str(next(numbers)), {"lease": "text"}) for _ in range(size)]
        table.batch("lean-batch", changes)

    def update() -> None:
        leases[-1] = queue.update(leases[-1], _TEXT, _HIDDEN)

    return {
        "insert": insert,
        "get": lambda: table.get("one", "one"),
        "merge": merge,
        "delete": lambda: table.delete("none", "none"),
        **{f"batch of {size}": partial(batch, size) for size in _BATCHES},
        "page of 10": lambda: table.page(partition, "", 10),
        "put message": lambda: leases.append(queue.put(_TEXT, _HIDDEN)),
        "update message": update,
        "delete message": lambda: queue.delete(leases.pop()),
        "receive 1": lambda: queue.receive(1, _HIDDEN),
        "peek at 32": queue.peek,
    }


def sdk(tables: TableClient, queue: QueueClient, numbers: Iterator[int]) -> Operations:
    """The same by the SDK."""
    leases: list[Any] = []
    row = {"PartitionKey": "two", "RowKey": "two", **_VALUES}
    etag = tables.upsert_entity(row, mode=UpdateMode.REPLACE)["etag"]
    visibility = int(_HIDDEN.total_seconds())

    def insert() -> None:
        tables.create_entity({**row, "PartitionKey": f"sdk{next(numbers)}"})

    def merge() -> None:
        nonlocal etag
        changed = {"PartitionKey": "two", "RowKey": "two", "state": "running"}
        etag = tables.update_entity(
            changed, mode=UpdateMode.MERGE, etag=etag, match_condition=MatchConditions.IfNotModified
        )["etag"]

    def batch(size: int) -> None:
        keys = [{"PartitionKey": "sdk-batch", "RowKey": str(next(numbers))} for _ in range(size)]
        tables.submit_transaction([("create", {**key, "lease": "text"}) for key in keys])

    def page() -> None:
        found = tables.query_entities("PartitionKey eq @p", parameters={"p": "page"}, results_per_page=10)
        list(next(found.by_page()))

    def update() -> None:
        leases[-1] = queue.update_message(leases[-1], content=_TEXT, visibility_timeout=visibility)

    def receive() -> None:
        pages = queue.receive_messages(messages_per_page=1, visibility_timeout=visibility, retry_read=0)
        list(next(pages.by_page(), ()))

    return {
        "insert": insert,
        "get": lambda: tables.get_entity("two", "two"),
        "merge": merge,
        "delete": lambda: tables.delete_entity("none", "none"),
        **{f"batch of {size}": partial(batch, size) for size in _BATCHES},
        "page of 10": page,
        "put message": lambda: leases.append(
            queue.send_message(_TEXT, time_to_live=-1, visibility_timeout=visibility)
        ),
        "update message": update,
        "delete message": lambda: queue.delete_message(leases.pop()),
        "receive 1": receive,
        "peek at 32": lambda: queue.peek_messages(32),
    }


def measured(operation: Callable[[], Any], calls: int) -> float:
    """Milliseconds of this process's CPU for a call."""
    begun = time.process_time()
    for _ in range(calls):
        operation()
    return (time.process_time() - begun) * 1000 / calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", "--turns", type=int, default=15, help="of each operation by each client")
    parser.add_argument("--calls", type=int, default=30, help="in a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Azurite(Path(folder)) as azurite:
        ours, theirs = both(azurite, options.rounds * options.calls + 100)
        print(f"{'ms of CPU for':16}{'lean':>8}{'SDK':>8}{'SDK / lean: least, median, most':>36}")
        for name, operation in ours.items():
            clients = operation, theirs[name]
            for client in clients:
                measured(client, 3)
            rounds = []
            for number in range(options.rounds):
                order = clients if number % 2 else clients[::-1]
                spent = {client: measured(client, options.calls) for client in order}
                rounds.append([spent[client] for client in clients])
            ratios = [second / first for first, second in rounds]
            ends = min(ratios), statistics.median(ratios), max(ratios)
            medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
            print(f"{name:16}{medians[0]:8.3f}{medians[1]:8.3f}{''.join(f'{end:12.1f}' for end in ends)}")


def both(azurite: Azurite, messages: int) -> tuple[Operations, Operations]:
    """Both clients on rows and queues of their own, with so many messages in each queue."""
    account, numbers = AzureAccount(azurite.connection_string, "cost"), count()
    table = account.table("cost")
    account.check()
    table.batch("page", [Change("insert", str(number), _VALUES) for number in range(10)])
    queues = [account.queue(name) for name in ("cost-lean", "cost-sdk")]
    for queue in queues:
        queue.create({})
        for _ in range(messages):
            queue.put(_TEXT, timedelta(0))
    counts: Counter[tuple[str, str]] = Counter()
    tables, queues_ = (
        connect(kind, name, azurite.connection_string, counts)
        for name, kind in (("table", TableServiceClient), ("queue", QueueServiceClient))
    )
    theirs = sdk(tables.get_table_client("cost"), queues_.get_queue_client(queues[1].name), numbers)
    return lean(table, queues[0], numbers), theirs


if __name__ == "__main__":
    main()
