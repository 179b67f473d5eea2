"""A long sequence of calls, drawn by a seed, that depend on what was answered before."""

import os
from collections.abc import Callable
from random import Random

from tests.adapters.azurite_patches.queue_calls import message
from tests.adapters.azurite_patches.table_calls import batch, create, entity, keys, literal
from tests.adapters.azurite_patches.wire import Wire, quoted

SEED = int(os.environ.get("LEGACY_QUEUE_TEST_SEED", "20"))
STEPS = 600
LATER = 30_000  # seconds: no message comes back, and none expires, while a test lasts

_QUEUES = ("sequence-a", "sequence-b")
_TABLE = "sequence"
_TEXTS = ("a", "b & c", "ü" * 100, "x" * 40_000, "", "\x01")


class Sequence:
    """One run of it, on one Azurite. Two runs choose alike as long as they are answered alike."""

    def __init__(self, az: Wire) -> None:
        self.az, self.random = az, Random(SEED)
        self.held: list[tuple[str, str]] = []  # path of a message, one of its receipts
        self.etags = ["*", 'W/"wrong"']

    def run(self) -> None:
        create(self.az, _TABLE)
        self.az.blob("PUT", f"/{_TABLE}", "restype=container")
        for queue in _QUEUES:
            self.az.queue("PUT", f"/{queue}")
        often = [
            self.put,
            self.receive,
            self.update,
            self.delete,
            self.write,
            self.write,
            self.query,
            self.batch,
        ]
        steps: list[Callable[[], None]] = [*4 * often, self.peek, self.get, self.blob, self.clear]
        for _ in range(STEPS):
            self.az.tick()
            self.random.choice(steps)()

    def put(self) -> None:
        life = self.random.choice(("", "&messagettl=-1", f"&messagettl={2 * LATER}"))
        query = f"visibilitytimeout={self.random.choice((0, 0, 0, LATER))}{life}"
        queue = self.random.choice(_QUEUES)
        answer = self.az.queue("POST", f"/{queue}/messages", query, message(self.random.choice(_TEXTS)))
        if answer.status == 201:
            self.held.append(
                (f"/{queue}/messages/{answer.element('MessageId')}", answer.element("PopReceipt"))
            )

    def receive(self) -> None:
        queue, most = self.random.choice(_QUEUES), self.random.choice((1, 1, 2, 32))
        answer = self.az.queue("GET", f"/{queue}/messages", f"numofmessages={most}&visibilitytimeout={LATER}")
        for one in answer.body.decode().split("<QueueMessage>")[1:]:
            message_id, receipt = one.split("MessageId>")[1][:-2], one.split("PopReceipt>")[1][:-2]
            self.held.append((f"/{queue}/messages/{message_id}", receipt))

    def update(self) -> None:
        if not self.held:
            return
        path, receipt = self.random.choice(self.held)
        body = self.random.choice(("", message(self.random.choice(_TEXTS[:4]))))
        query = f"popreceipt={quoted(receipt)}&visibilitytimeout={self.random.choice((0, LATER))}"
        answer = self.az.queue("PUT", path, query, body)
        if answer.status == 204:
            self.held.append((path, answer.header("x-ms-popreceipt")))

    def delete(self) -> None:
        if self.held:
            path, receipt = self.held[self.random.randrange(len(self.held))]
            self.az.queue("DELETE", path, f"popreceipt={quoted(receipt)}")

    def peek(self) -> None:
        for queue in _QUEUES:
            self.az.queue(
                "GET", f"/{queue}/messages", f"peekonly=true&numofmessages={self.random.randint(1, 32)}"
            )
            self.az.queue("GET", f"/{queue}", "comp=metadata")

    def clear(self) -> None:
        queue = self.random.choice(_QUEUES)
        if self.random.random() < 0.3:
            self.az.queue("DELETE", f"/{queue}")
            self.az.queue("GET", f"/{queue}/messages")
            self.az.queue("PUT", f"/{queue}", headers={"x-ms-meta-made": "again"})
        elif self.random.random() < 0.3:
            self.az.queue("DELETE", f"/{queue}/messages")

    def write(self) -> None:
        partition, row = self._key()
        method = self.random.choice(("POST", "PUT", "PATCH", "MERGE", "DELETE"))
        path = f"/{_TABLE}" if method == "POST" else keys(_TABLE, partition, row)
        body = "" if method == "DELETE" else entity(partition, row, **self._properties())
        match = self.random.choice((None, None, *self.etags[-8:], "*"))
        answer = self.az.table(method, path, "", body, headers={"If-Match": match})
        if answer.status < 300 and method != "DELETE":
            self.etags.append(answer.header("etag"))

    def get(self) -> None:
        for _ in range(5):
            self.az.table("GET", keys(_TABLE, *self._key()))

    def query(self) -> None:
        partition, row = self._key()
        more = self.random.choice(
            ("", f" and RowKey ge {literal(row)}", " and n ge 5", " and t eq true", " or n eq 1")
        )
        filter_ = self.random.choice((f"PartitionKey eq {literal(partition)}{more}", "n ge 5", ""))
        top = self.random.choice(("", "&$top=1", "&$top=5"))
        self.az.table("GET", f"/{_TABLE}()", f"$filter={quoted(filter_)}{top}")

    def batch(self) -> None:
        partition, _ = self._key()
        changes = []
        for number in self.random.sample(range(8), self.random.randint(1, 5)):
            method = self.random.choice(("POST", "PUT", "PATCH", "PATCH", "DELETE"))
            path = f"/{_TABLE}" if method == "POST" else keys(_TABLE, partition, f"row {number}")
            body = "" if method == "DELETE" else entity(partition, f"row {number}", **self._properties())
            headers = (
                {}
                if method in ("POST", "PUT")
                else {"If-Match": self.random.choice(("*", "*", *self.etags[-3:]))}
            )
            changes.append((method, path, body, headers))
        batch(self.az, changes)

    def blob(self) -> None:
        path = f"/{_TABLE}/{self.random.randint(1, 5)}"
        method = self.random.choice(("PUT", "PUT", "GET", "DELETE"))
        body = self.random.choice(_TEXTS[:4]) if method == "PUT" else ""
        self.az.blob(
            method, path, "", body, headers={"x-ms-blob-type": "BlockBlob"} if method == "PUT" else {}
        )

    def _key(self) -> tuple[str, str]:
        return self.random.choice(("p", "q", "it's")), f"row {self.random.randint(0, 7)}"

    def _properties(self) -> dict[str, object]:
        every = {
            "n": self.random.randint(0, 9),
            "t": self.random.random() < 0.5,
            "s": self.random.choice(_TEXTS[:3]),
        }
        return {name: value for name, value in every.items() if self.random.random() < 0.7}


def run_sequence(az: Wire) -> None:
    Sequence(az).run()
