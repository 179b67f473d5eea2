"""Azure queues and tables without a client library: what the floor of scripts/bench is made of."""

import base64
import hashlib
import hmac
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from bench_http import Answer, Connection, request

from legacy_queue.domain.times import format_time

Row = dict[str, Any]

# of Azurite, published in its documentation
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_VERSION = "x-ms-version: 2019-02-02\r\n"
_ROW = f"{_VERSION}Accept: application/json;odata=minimalmetadata\r\nDataServiceVersion: 3.0\r\n"
_WRITE = f"{_ROW}Content-Type: application/json\r\nPrefer: return-no-content\r\n"
_LEASE = re.compile(rb"<MessageId>(.*?)</MessageId>.*?<PopReceipt>(.*?)</PopReceipt>", re.DOTALL)

MessageLease = tuple[str, str]  # messageId, receipt


def account_signature() -> str:
    """The query parameters of an account SAS for everything, good for a day."""
    expiry = format_time(datetime.now(UTC) + timedelta(days=1))[:19] + "Z"
    signed = "\n".join([_ACCOUNT, "rwdlacup", "qt", "sco", "", expiry, "", "https,http", "2019-12-12", ""])
    mac = hmac.new(base64.b64decode(_ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    fields = {"sv": "2019-12-12", "ss": "qt", "srt": "sco", "sp": "rwdlacup", "se": expiry}
    return urlencode({**fields, "spr": "https,http", "sig": base64.b64encode(mac).decode()})


class Storage:
    """Azurite's queues and tables over one connection to each; a request raises Refused for an error."""

    def __init__(self, endpoints: dict[str, str], signature: str) -> None:
        queue, table = urlsplit(endpoints["queue"]), urlsplit(endpoints["table"])
        self._queue_host, self._queue_path = queue.netloc, queue.path
        self._table_host, self._table_path, self._table_url = table.netloc, table.path, endpoints["table"]
        self._queues = Connection(queue.hostname or "", queue.port or 80)
        self._tables = Connection(table.hostname or "", table.port or 80)
        self._signature = signature

    async def _queue(self, method: str, path: str, text: str | None = None, query: str = "") -> Answer:
        target = f"{self._queue_path}{path}?{query}{self._signature}"
        body = "" if text is None else f"<QueueMessage><MessageText>{text}</MessageText></QueueMessage>"
        return await self._queues.send(request(method, self._queue_host, target, body.encode(), _VERSION))

    async def _table(
        self, method: str, path: str, row: Row | None = None, headers: str = _WRITE, query: str = ""
    ) -> Answer:
        target = f"{self._table_path}{path}?{query}{self._signature}"
        body = b"" if row is None else json.dumps(row).encode()
        return await self._tables.send(request(method, self._table_host, target, body, headers))

    async def create_queue(self, name: str) -> None:
        await self._queue("PUT", f"/{name}")

    async def queues(self) -> list[str]:
        """The names of all of them."""
        answer = await self._queue("GET", "/", query="comp=list&")
        return [name.decode() for name in re.findall(rb"<Name>(.*?)</Name>", answer.body)]

    async def put(self, queue: str, text: str, hidden_for: int = 0) -> MessageLease:
        """A message that lives an hour, ``hidden_for`` in seconds."""
        query = f"messagettl=3600&visibilitytimeout={hidden_for}&"
        return _lease(await self._queue("POST", f"/{queue}/messages", text, query))

    async def receive(self, queue: str, hidden_for: int) -> MessageLease:
        """The only message; raises if there is none."""
        query = f"numofmessages=1&visibilitytimeout={hidden_for}&"
        return _lease(await self._queue("GET", f"/{queue}/messages", query=query))

    async def update(self, queue: str, lease: MessageLease, text: str, hidden_for: int) -> MessageLease:
        query = f"popreceipt={quote(lease[1], safe='')}&visibilitytimeout={hidden_for}&"
        answer = await self._queue("PUT", f"/{queue}/messages/{lease[0]}", text, query)
        return lease[0], answer.header("x-ms-popreceipt")

    async def delete(self, queue: str, lease: MessageLease) -> None:
        query = f"popreceipt={quote(lease[1], safe='')}&"
        await self._queue("DELETE", f"/{queue}/messages/{lease[0]}", query=query)

    async def create_table(self, name: str) -> None:
        await self._table("POST", "/Tables", {"TableName": name})

    async def tables(self) -> list[str]:
        """The names of all of them."""
        answer = await self._table("GET", "/Tables", headers=_ROW)
        return [table["TableName"] for table in json.loads(answer.body)["value"]]

    async def insert(self, table: str, row: Row) -> str:
        """The ETag."""
        return (await self._table("POST", f"/{table}", row)).header("etag")

    async def merge(self, table: str, row: Row, etag: str) -> str:
        """The new ETag; refused if the row has another ETag."""
        path = f"/{table}{_key(row)}"
        return (await self._table("PATCH", path, row, f"{_WRITE}If-Match: {etag}\r\n")).header("etag")

    async def get(self, table: str, row: Row) -> Row:
        answer = await self._table("GET", f"/{table}{_key(row)}", headers=_ROW)
        return dict(json.loads(answer.body))


def _lease(answer: Answer) -> MessageLease:
    found = _LEASE.search(answer.body)
    if not found:
        raise LookupError("no message in the answer")
    return found[1].decode(), found[2].decode()


def _key(row: Row) -> str:
    partition, key = (quote(row[name].replace("'", "''"), safe="") for name in ("PartitionKey", "RowKey"))
    return f"(PartitionKey='{partition}',RowKey='{key}')"
