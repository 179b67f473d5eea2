"""Blobs, and what HTTP allows: verbs, paths, headers, chunks, pipelines, broken connections."""

from typing import Any

from legacy_queue.adapters.azurite import ACCOUNT
from tests.adapters.azurite_patches.queue_calls import count, message, put, receive
from tests.adapters.azurite_patches.table_calls import create, entity, keys
from tests.adapters.azurite_patches.wire import DATE, HOST, JSON, VERSION, Wire, authorization

BLOCK = {"x-ms-blob-type": "BlockBlob", "Content-Type": "text/plain"}

ODD_QUERIES = """\
visibilitytimeout=3000&visibilitytimeout=3000
numofmessages=1&numofmessages=2
numofmessages[]=1
=1
a
&
?
numofmessages=1?
numofmessages%3D1
%6eumofmessages=2
NumOfMessages=0
numofmessages=%zz
a%5Db=1
x]=1"""
HEADERS: tuple[dict[str, str | None], ...] = (
    {"x-ms-client-request-id": "mine"},
    {"x-ms-client-request-id": ""},
    {"x-ms-client-request-id": "x" * 2000},
    {"x-ms-version": "1999-01-01"},
    {"x-ms-version": None},
    {"x-ms-date": DATE, "Date": DATE},
    {"Host": "devstoreaccount1.queue.example"},
    {"Host": "localhost"},
    {"Connection": "close"},
    {"Accept": "text/html"},
    {"x-ms-Custom": "A  b"},
    {"Content-Type": "text/plain"},
    {"User-Agent": "agent"},
    {"If-None-Match": "*"},
    {"Accept-Encoding": "gzip"},
    {"DataServiceVersion": "1.0"},
    {"Expect": "100-continue-not"},
)


def blobs(az: Wire) -> None:
    az.blob("PUT", "/blobs", "restype=container")
    az.blob("PUT", "/blobs", "restype=container")
    for name, body in (
        ("a", b"hello"),
        ("deep/er", b""),
        ("%C3%BC%20x", b"\x00\xff" * 1000),
        ("large", b"x" * 300_000),
    ):
        az.blob(
            "PUT",
            f"/blobs/{name}",
            "",
            body,
            headers=BLOCK | {"x-ms-meta-k": "v", "Content-Length": str(len(body))},
        )
        az.blob("GET", f"/blobs/{name}")
        az.blob("HEAD", f"/blobs/{name}")
        for given in ("bytes=0-3", "bytes=2-", "bytes=-3", "bytes=900-901", "x"):
            az.blob("GET", f"/blobs/{name}", headers={"Range": given, "x-ms-range": given})
    az.blob("PUT", "/blobs/a", "", b"again", headers=BLOCK | {"If-None-Match": "*"})
    az.blob("PUT", "/blobs/b", "", b"no type")
    az.blob("PUT", "/blobs/c", "", b"", headers=BLOCK, chunks=(b"chunk",))
    az.blob("PUT", "/notthere/a", "", b"x", headers=BLOCK)
    for block in ("YQ==", "Yg=="):
        az.blob(
            "PUT",
            "/blobs/blocks",
            f"comp=block&blockid={block.replace('=', '%3D')}",
            b"block " + block.encode(),
        )
    listed = "<?xml version='1.0'?><BlockList><Latest>YQ==</Latest><Latest>Yg==</Latest></BlockList>"
    az.blob("PUT", "/blobs/blocks", "comp=blocklist", listed)
    az.blob("PUT", "/blobs/blocks", "comp=blocklist", listed.replace("YQ==", "eA=="))
    az.blob("GET", "/blobs/blocks")
    az.blob("GET", "/blobs", "restype=container&comp=list&include=metadata")
    az.blob("DELETE", "/blobs/a")
    az.blob("GET", "/blobs/a")
    az.blob("GET", "/", "comp=list")


def verbs_and_paths(az: Wire) -> None:
    az.queue("PUT", "/verbs")
    create(az, "verbs")
    cors = {"Origin": "http://example.test", "Access-Control-Request-Method": "GET"}
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "MERGE", "OPTIONS", "PURGE"):
        for path in (
            "",
            "/",
            "//verbs/messages",
            "/verbs",
            "/verbs/messages",
            "/verbs/messages/",
            "/verbs//messages",
            "/verbs/Messages",
        ):
            az.queue(method, path)
        for path in (
            "",
            "/",
            "/verbs",
            "/verbs()",
            "/verbs/",
            "/Tables",
            "/$batch",
            "//verbs()",
            "/verbs(",
            "/verbs')",
        ):
            az.table(method, path)
        for service, path in (("queue", "/verbs/messages"), ("table", "/verbs()"), ("blob", "/verbs")):
            az.send(service, method, path, headers=cors)
            az.send(service, method, path, headers={"X-HTTP-Method": "GET"})
    for query in ODD_QUERIES.split("\n"):
        put(az, "verbs")
        az.queue("GET", "/verbs/messages", query)
    az.queue("DELETE", "/verbs")  # else its messages come back half a minute later, or not yet


def headers(az: Wire) -> None:
    az.queue("PUT", "/headers")
    create(az, "headers")
    for given in HEADERS:
        put(az, "headers")
        az.queue("POST", "/headers/messages", "", message("x"), headers=given)
        az.close()
        az.queue("GET", "/headers/messages", "visibilitytimeout=3000", headers=given)
        az.close()
        az.table("GET", "/headers()", headers=given)
        az.close()
        az.table("GET", keys("headers", "p", "r"), headers=given)
        az.close()


def lengths_and_chunks(az: Wire) -> None:
    az.queue("PUT", "/chunks")
    create(az, "chunks")
    body = message("in chunks").encode()
    for chunks in ((body,), (body[:10], body[10:]), (b"x",)):
        az.tick()
        az.queue("POST", "/chunks/messages", chunks=chunks)
        row = entity("p", f"{len(chunks)}{len(chunks[0])}").encode()
        az.table("POST", "/chunks", chunks=(row[:5], row[5:]))
        az.table("POST", "/$batch", chunks=(row,))
    receive(az, "chunks", "numofmessages=32&visibilitytimeout=3000")
    az.queue("GET", "/chunks/messages", "", b"a body that is not expected")
    az.table("GET", "/chunks()", "", b"a body that is not expected")
    az.queue("DELETE", "/chunks/messages/x", "popreceipt=x", b"a body that is not expected")
    az.queue("POST", "/chunks/messages", "", message("x" * 2_000_000))
    az.table("POST", "/chunks", "", entity("p", "large", s="x" * 5_000_000))
    az.queue("POST", "/not-there/messages", "", message("x" * 300_000), sign="")
    az.queue("GET", "/chunks", "comp=metadata")


def _request(
    service: str, method: str, path: str, body: bytes = b"", protocol: str = "HTTP/1.1", **given: str
) -> bytes:
    sent = {
        "Host": HOST,
        "x-ms-version": VERSION,
        "x-ms-date": DATE,
        "Content-Length": str(len(body)),
    } | given
    sent |= {"Accept": JSON, "Content-Type": "application/json"} if service == "table" else {}
    target, _, query = f"/{ACCOUNT}{path}".partition("?")
    sent["Authorization"] = authorization(service, method, target, query, sent)
    lines = [f"{method} /{ACCOUNT}{path} {protocol}", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def pipelines(az: Wire) -> None:
    az.queue("PUT", "/pipeline")
    create(az, "pipeline")
    end: dict[str, Any] = {"Connection": "close"}
    put_ = _request("queue", "POST", "/pipeline/messages", message("x").encode())
    az.exchange(
        "queue", 4 * put_ + _request("queue", "POST", "/pipeline/messages", message("x").encode(), **end)
    )
    gets = [_request("queue", "GET", "/pipeline/messages?visibilitytimeout=3000") for _ in range(3)]
    az.exchange("queue", b"".join([*gets, _request("queue", "GET", "/not-there/messages", **end)]))
    rows = [_request("table", "POST", "/pipeline", entity("p", str(n)).encode()) for n in (1, 2, 2, 3)]
    az.exchange("table", b"".join([*rows, _request("table", "GET", "/pipeline()", **end)]))
    for service, path in (("queue", "/pipeline/messages?visibilitytimeout=3000"), ("table", "/pipeline()")):
        az.exchange(service, _request(service, "GET", path, protocol="HTTP/1.0"))
        az.exchange(service, _request(service, "GET", path, **end))
        az.exchange(service, _request(service, "GET", path, **end).replace(b" /", b" http://other.test/", 1))
        az.exchange(service, b"GET\r\n\r\n")
        az.exchange(service, b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    az.table("GET", "/pipeline()")


def broken_connections(az: Wire) -> None:
    az.queue("PUT", "/broken")
    create(az, "broken")
    put(az, "broken", "whole")
    received = receive(az, "broken")
    held = f"/broken/messages/{received.element('MessageId')}"
    update = f"{held}?popreceipt={received.element('PopReceipt')}&visibilitytimeout=0"
    body = message("cut in two").encode()
    for service, request in (
        ("queue", _request("queue", "POST", "/broken/messages", body)),
        ("queue", _request("queue", "PUT", update, body)),
        ("table", _request("table", "POST", "/broken", entity("p", "cut").encode())),
        (
            "table",
            _request("table", "PUT", "/broken(PartitionKey='p',RowKey='r')", entity("p", "r").encode()),
        ),
    ):
        head = request.index(b"\r\n\r\n") + 4
        for length in (10, head - 2, head, head + 1, len(request) - 1):
            az.cut(service, request[:length])
    chunked = _request("queue", "PUT", update).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    for sent in (b"", b"5\r\nabc", b"%x\r\n%s\r\n" % (len(body), body), b"zz\r\n"):
        az.cut("queue", chunked + sent)
    az.queue("GET", "/broken/messages", "peekonly=true&numofmessages=32")
    az.table("GET", "/broken()")
    az.cut("queue", _request("queue", "POST", "/broken/messages", message("sent whole").encode()))
    az.until(lambda: b">2<" in count(az, "broken"))
    receive(az, "broken", "numofmessages=32&visibilitytimeout=3000")
    az.queue("PUT", held, f"popreceipt={received.element('PopReceipt')}&visibilitytimeout=0")
