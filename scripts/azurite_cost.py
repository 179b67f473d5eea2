"""What an operation costs Azurite, with its patches and without; run by scripts/azurite-cost.

Two Azurites on disk, one as it is and one with azurite/patches, do the same operations in rounds, so that
whatever else the machine does slows both. Their own CPU time is counted, which the client's does not enter:
with little stored, and with so many messages in one queue and as many rows in one table, each in a partition
of its own. The last line is what a save of both costs, after one of each was put; Azurite saves every 5 s.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from legacy_queue.adapters.azurite import Azurite
from legacy_queue.config.settings import Settings
from tests.adapters.azurite_patches.queue_calls import message
from tests.adapters.azurite_patches.table_calls import batch, create, entity, keys
from tests.adapters.azurite_patches.wire import Answer, Wire, quoted

HIDDEN = "visibilitytimeout=3000"
NO_CONTENT = {"Prefer": "return-no-content"}
PAYLOAD = "x" * 1000  # characters of a row; a message has 200


@dataclass
class Side:
    """An Azurite with or without patches, and the parts of its answers that later operations need."""

    folder: Path
    azurite: Azurite
    az: Wire
    made: int = 0
    messages: list[tuple[str, str]] = field(default_factory=list)  # path, receipt

    def cpu(self) -> float:
        """Seconds that its threads have computed so far."""
        tasks = Path(f"/proc/{self.azurite.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text().split()[0]) for file in tasks) / 1e9

    def row(self, number: int) -> str:
        return f"{self.made}-{number:04}"

    def saved(self) -> list[int]:
        """When its messages and its rows were saved."""
        files = [self.folder / f"__azurite_db_{name}__.json" for name in ("queue", "table")]
        return [file.stat().st_mtime_ns for file in files]

    def run_round(self, operation: "Operation", times: int) -> float:
        """Milliseconds of its CPU for each."""
        self.az.transcript.clear()
        before = self.cpu()
        for number in range(times):
            answer = operation(self, number)
            assert answer.status in (200, 201, 202, 204, 404, 409), answer
        return (self.cpu() - before) * 1000 / times


Operation = Callable[[Side, int], Answer]


def put(side: Side, number: int) -> Answer:
    return side.az.queue("POST", "/cost/messages", "messagettl=86400", message(f"{number:0200}"))


def receive(side: Side, number: int) -> Answer:  # noqa: ARG001
    answer = side.az.queue("GET", "/cost/messages", HIDDEN)
    path = f"/cost/messages/{answer.element('MessageId')}"
    side.messages.append((path, answer.element("PopReceipt")))
    return answer


def update(side: Side, number: int) -> Answer:
    path, receipt = side.messages[number]
    answer = side.az.queue("PUT", path, f"popreceipt={quoted(receipt)}&{HIDDEN}", message(f"{number:0200}"))
    side.messages[number] = path, answer.header("x-ms-popreceipt")
    return answer


def hold(side: Side, number: int) -> Answer:
    path, receipt = side.messages[number]
    answer = side.az.queue("PUT", path, f"popreceipt={quoted(receipt)}&visibilitytimeout=3001")
    side.messages[number] = path, answer.header("x-ms-popreceipt")
    return answer


def delete(side: Side, number: int) -> Answer:
    path, receipt = side.messages[number]
    return side.az.queue("DELETE", path, f"popreceipt={quoted(receipt)}")


def receive_none(side: Side, number: int) -> Answer:  # noqa: ARG001
    return side.az.queue("GET", "/empty/messages", f"numofmessages=32&{HIDDEN}")


def receive_32(side: Side, number: int) -> Answer:  # noqa: ARG001
    return side.az.queue("GET", "/many/messages", "numofmessages=32&visibilitytimeout=3000")


def insert(side: Side, number: int) -> Answer:
    body = entity(side.row(number), "task", payload=PAYLOAD)
    return side.az.table("POST", "/cost", "", body, headers=NO_CONTENT)


def get(side: Side, number: int) -> Answer:
    return side.az.table("GET", keys("cost", side.row(number), "task"))


def merge(side: Side, number: int) -> Answer:
    body = entity(side.row(number), "task", state="running")
    return side.az.table("PATCH", keys("cost", side.row(number), "task"), "", body, headers={"If-Match": "*"})


def query(side: Side, number: int) -> Answer:
    return side.az.table("GET", "/cost()", f"$filter={quoted(f'''PartitionKey eq '{side.row(number)}' ''')}")


def remove(side: Side, number: int) -> Answer:
    return side.az.table("DELETE", keys("cost", side.row(number), "task"), headers={"If-Match": "*"})


def get_none(side: Side, number: int) -> Answer:
    return side.az.table("GET", keys("cost", side.row(number), "absent"))


def save(side: Side, number: int) -> Answer:
    """Has both files saved; the operations of this are a small part of its cost."""
    before = side.saved()
    put(side, number)
    body = entity(f"saved {before}", "task", payload=PAYLOAD)
    answer = side.az.table("POST", "/cost", "", body, headers=NO_CONTENT)
    while any(now == then for now, then in zip(side.saved(), before, strict=True)):
        time.sleep(0.1)
    return answer


def batch_of(rows: int) -> Operation:
    def write(side: Side, number: int) -> Answer:
        changes = [
            ("POST", "/cost", entity(f"b{side.row(number)}", f"{n}", p="x"), NO_CONTENT) for n in range(rows)
        ]
        return batch(side.az, changes)

    return write


OPERATIONS: dict[str, Operation] = {
    "put a message": put,
    "receive 1": receive,
    "update with a text": update,
    "update without": hold,
    "delete a message": delete,
    "receive, empty": receive_none,
    "receive 32": receive_32,
    "insert an entity": insert,
    "get": get,
    "get, not found": get_none,
    "merge": merge,
    "query a partition": query,
    "delete an entity": remove,
    "batch of 2": batch_of(2),
    "batch of 16": batch_of(16),
    "save": save,
}

TIMES: dict[Operation, Callable[[int], int]] = {  # others: all of them
    receive_32: lambda times: max(1, times // 20),
    save: lambda _: 1,
}


def fill(az: Wire, stored: int) -> None:
    """So many messages in a queue that is not looked at, and rows in the table that is."""
    create(az, "cost")
    for queue in ("cost", "empty", "many", "stored"):
        az.queue("PUT", f"/{queue}")
    for number in range(stored):
        az.transcript.clear()
        az.queue("POST", "/stored/messages", "messagettl=86400", message(f"{number:0200}"))
        az.table("POST", "/cost", "", entity(f"stored {number}", "task", payload=PAYLOAD), headers=NO_CONTENT)


def prepare(side: Side, times: int) -> None:
    side.made += 1
    side.messages.clear()
    for _ in range(32 * times):
        side.az.queue("POST", "/many/messages", "", message("x" * 200))


def sides(stack: ExitStack, folder: Path, stored: int) -> Iterator[Side]:
    """Azurite as it is, which is filled, and one with patches on a copy of its folder."""
    azurite_dir = Settings().azurite_dir
    with Azurite(folder / "none", azurite_dir, patches="none") as filled:
        az = Wire(filled.ports)
        fill(az, stored)
        az.close()
    shutil.copytree(folder / "none", folder / "all", ignore=shutil.ignore_patterns("ports.json"))
    for patches in ("none", "all"):
        azurite = stack.enter_context(Azurite(folder / patches, azurite_dir, patches=patches))
        az = Wire(azurite.ports)
        stack.callback(az.close)
        yield Side(folder / patches, azurite, az)


def measure(stored: int, rounds: int, times: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        both = list(sides(stack, folder, stored))
        costs = {name: [list[float](), list[float]()] for name in OPERATIONS}
        for number in range(rounds + 1):
            for side in both:
                prepare(side, max(1, times // 20))
            for name, operation in OPERATIONS.items():
                for side, measured in zip(both, costs[name], strict=True):
                    limit = TIMES.get(operation)
                    cost = side.run_round(operation, limit(times) if limit else times)
                    if number:  # not the first, which warms up
                        measured.append(cost)
    print(f"\n{stored:,} messages and rows stored; ms of Azurite's CPU; ratio: median (least to most)\n")
    print(f"{'':20}{'none':>8}{'all':>8}{'none / all':>26}")
    for name, (stock, patched) in costs.items():
        ratios = [stock_cost / patched_cost for stock_cost, patched_cost in zip(stock, patched, strict=True)]
        middle = statistics.median(ratios)
        shown = f"{middle:.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        print(
            f"{name:20}{statistics.median(stock):8.2f}{statistics.median(patched):8.2f}{shown:>26}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--times", type=int, default=200, help="of each operation in a round, with nothing stored"
    )
    parser.add_argument(
        "--stored", type=int, default=20_000, help="messages and rows of the second part; 0: without"
    )
    parser.add_argument(
        "--stored-times", type=int, default=20, help="of each operation in a round, with these"
    )
    options = parser.parse_args()
    measure(0, options.rounds, options.times)
    if options.stored:
        measure(options.stored, options.rounds, options.stored_times)


if __name__ == "__main__":
    main()
