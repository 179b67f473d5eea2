"""What one request without credentials can cost the server; run by scripts/hostile.

Each route gets each hostile body, Authorization header, query and path segment. Printed is the dearest
request of each route: the server's processor time, in ms and as a multiple of a ping's, and the answer's
bytes. It fails for any answer that costs more than the limits, and for any 5xx.
"""

import argparse
import base64
import json
import re
import socket
import string
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from served import Line, process_of, served

from legacy_queue.config import Settings

_STREAM_ENDS = 1.2  # seconds until the server gives the place of a stream to another
_MB = 1024 * 1024
_TRIES = 3  # of a request that costs too much: the machine may be busy
_TIME = "2030-01-01T00:00:00.000Z"
_SLUG = "VLdaX5vAQ0iW8JIr3sGQZw"
_SEGMENTS = {
    "taskId": _SLUG,
    "taskGroupId": _SLUG,
    "runId": "0",
    "name": "private%2Flog",
    "account": "embedded",
    "container": f"{Settings().queue_prefix}-artifacts",
}
_BESIDE = [
    {"method": "get", "route": "/events"},
    {"method": "get", "route": "/migration"},
    {"method": "put", "route": "/uploads/<ticket>"},
    {"method": "get", "route": "/azure/<account>/<queue>/messages"},
    {"method": "delete", "route": "/azure/<account>/<queue>/messages/<message>"},
    {"method": "get", "route": "/azure/<account>/<container>/<blob>"},
    {"method": "put", "route": "/azure/<account>/<container>/<blob>"},
]


@dataclass(frozen=True)
class Hostile:
    """One request; ``what`` says what is hostile about it."""

    what: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True)
class Cost:
    """``seconds`` of processor time of the server, ``size`` of the answer in bytes."""

    what: str
    status: int
    seconds: float
    size: int


def definition(**changes: Any) -> bytes:
    """What createTask is given, with the changes, up to 1 MiB of it."""
    metadata = {"name": "n", "description": "d", "owner": "o@example.com", "source": "http://example.com"}
    times = {"created": _TIME, "deadline": _TIME}
    body = {"provisionerId": "p", "workerType": "w", **times, "payload": {}, "metadata": metadata, **changes}
    return compact(body)


def compact(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _metadata(**changes: str) -> dict[str, str]:
    return {"name": "n", "description": "d", "owner": "o@example.com", "source": "http://h", **changes}


def bodies() -> Iterator[tuple[str, bytes]]:
    """Bodies of up to 1 MiB each, and a larger body."""
    keys = ["".join(letters) for letters in product(string.ascii_letters, repeat=3)][:130_000]
    yield "130,000 distinct keys", b"{" + b",".join(b'"%s":1' % key.encode() for key in keys) + b"}"
    yield "130,000 equal keys", b"{" + b",".join([b'"key":1'] * 130_000) + b"}"
    yield "distinct keys, the last equal", b"{" + b",".join(b'"%x":1' % n for n in range(90_000)) + b',"0":1}'
    yield "140,000 numbers as routes", definition(routes=list(range(140_000)))
    yield "450,000 equal numbers as routes", definition(routes=[1] * 450_000)
    yield "140,000 scopes", definition(scopes=["x:yz"] * 140_000)
    yield "9,000 scopes that are none", definition(scopes=[[]] * 9_000)
    yield "10,000 scopes", definition(scopes=[f"{number:05}" * 18 for number in range(10_000)])
    yield "110,000 dependencies", definition(dependencies=[str(number) for number in range(110_000)])
    yield "80,000 tags", definition(tags={f"{number:05}": 1 for number in range(80_000)})
    yield "80,000 unknown properties", definition(**{f"{number:05}": 1 for number in range(80_000)})
    yield "an unknown property of 1 MB", definition(**{"x" * 1_000_000: 1})
    yield "an owner of 1 MB", definition(metadata=_metadata(owner="a@" + "a." * 500_000))
    yield "a source of 1 MB", definition(metadata=_metadata(source="http://" + "x" * 1_000_000))
    yield "a time of 1 MB", definition(created="1" * 1_000_000)
    yield "10,000 parts that are none", compact({"storageType": "blob", "parts": [{"x": 1}] * 100_000})
    yield "200,000 etags", compact({"etags": ["x"] * 200_000})
    yield "70,000 actions", compact({"actions": [{"name": number} for number in range(70_000)]})
    yield "330,000 arrays in a payload", definition(payload={"a": [[]] * 330_000})
    yield "500,000 numbers in a payload", definition(payload={"a": [1] * 500_000})
    yield "floats with exponents", b"[" + b",".join([b"1e9"] * 250_000) + b"]"
    yield "floats of 18 digits", b"[" + b",".join([b"0.123456789012345678"] * 50_000) + b"]"
    yield "depth 100,000", b"[" * 100_000 + b"]" * 100_000
    yield "objects, depth 100,000", b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    yield "depth 190, 300,000 wide", b"[" * 190 + b",".join([b"[]"] * 300_000) + b"]" * 190
    yield "a string of 1 MB", b'"' + b"x" * 1_000_000 + b'"'
    yield "escapes of 1 MB", b'"' + rb"\u0041" * 170_000 + b'"'
    yield "half surrogates", b'"' + rb"\ud800" * 170_000 + b'"'
    yield "an integer of 1,000,000 digits", b"1" * 1_000_000
    yield "a float of 1,000,000 digits", b"0." + b"1" * 1_000_000
    yield "an exponent of 1,000,000 digits", b"1e" + b"9" * 1_000_000
    yield "1e400", b"1e400"
    yield "0.1e-400", b"0.1e-400"
    yield "1,000,000 minus signs", b"-" * 1_000_000
    yield "1,000,000 spaces", b" " * 1_000_000 + b"1"
    yield "1,000,000 zero bytes", b"\0" * 1_000_000
    yield "2 MB", b" " * 2 * _MB
    entities = b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10))
    yield "entities", b'<!DOCTYPE x [<!ENTITY a0 "x">' + entities + b"]><BlockList>&a9;</BlockList>"


def authorizations() -> Iterator[tuple[str, str]]:
    """Of up to 64 KiB, which the server refuses or overlooks."""
    fields = 'id="root", ts="1520139967", nonce="n", mac="AAAA"'
    yield "Hawk of 30,000 quotes", "Hawk " + '"' * 30_000
    yield "Hawk of 60,000 commas", "Hawk " + "," * 60_000
    yield "Hawk of 6,000 fields", "Hawk " + 'id="a",' * 6_000
    yield "Hawk with 60,000 spaces", "Hawk " + " " * 60_000 + fields
    yield "Hawk with an id of 60,000", f"Hawk {fields.replace('root', 'r' * 60_000)}"
    yield "Hawk with a mac of 60,000", f"Hawk {fields.replace('AAAA', 'A' * 60_000)}"
    yield "Hawk with 60,000 backslashes", f"Hawk {fields}" + "\\" * 60_000
    yield "Bearer of 60,000", "Bearer " + "x" * 60_000
    for what, content in {
        "9,000 authorizedScopes": {"authorizedScopes": ["x"] * 9_000},
        "9,000 assumed roles": {"authorizedScopes": ["assume:*"] * 3_500},
        "numbers": {"authorizedScopes": list(range(7_000))},
        "a certificate of 9,000 scopes": {"certificate": _certificate(["x"] * 9_000)},
        "a certificate that no issuer signed": {"certificate": _certificate(["*"], issuer="root")},
        "a certificate with long times": {"certificate": _certificate([], start=int("9" * 4_000))},
    }.items():
        ext = base64.b64encode(compact(content)).decode()
        yield f"ext with {what}", f'Hawk {fields}, ext="{ext}"'
    deep = base64.b64encode(b"[" * 40_000).decode()
    yield "ext, depth 40,000", f'Hawk {fields}, ext="{deep}"'
    yield "ext of 60,000 =", f'Hawk {fields}, ext="{"=" * 60_000}"'


def _certificate(scopes: list[str], **changes: Any) -> dict[str, Any]:
    times = {"start": 0, "expiry": 1}
    return {"version": 1, "scopes": scopes, **times, "seed": "x" * 44, "signature": "x", **changes}


def queries() -> Iterator[tuple[str, str]]:
    """Of up to 8 KB, the maximum of a request line."""
    yield "4,000 equal parameters", "&".join(["a"] * 3_900)
    yield "2,000 parameters", "&".join(f"{number:x}" for number in range(1_600))
    yield "7,800 &", "&" * 7_800
    yield "1,900 bewits", "&".join(["bewit"] * 1_200)
    yield "a bewit of 7,800", "bewit=" + "A" * 7_800
    yield "a bewit of 2,600 escapes", "bewit=" + "%41" * 2_500
    yield "a parameter of 7,800", "x" * 7_800 + "=1"
    yield "2,600 escapes", "limit=" + "%ff" * 2_500
    yield "2,600 broken escapes", "limit=" + "%zz" * 2_500
    yield "a continuationToken of 7,800", "continuationToken=" + "A" * 7_800
    yield "a continuationToken of 3,500", "continuationToken=" + "W1tb" * 870
    yield "a routingKey of 128 #", "routingKey=" + ".".join(["%23"] * 128)
    yield "a routingKey of 60 #.*", "routingKey=" + ".".join(["%23.*"] * 60)
    yield "a routingKey of 7,000", "routingKey=" + "*." * 3_500
    yield "an exchange of 7,800", "exchange=" + "x" * 7_800
    yield "a lastEventId of 250", "lastEventId=" + "9" * 250
    yield "a doubled sig", "sig=x&sig=" + "%00" * 2_500
    yield "a since of 7,800", "since=" + "1" * 7_800


def segments() -> Iterator[tuple[str, str]]:
    """In place of each parameter of a path."""
    yield "a name of 1,024", "x" * 1_024
    yield "a name of 7,500", "x" * 7_500
    yield "a name of 7,500 slashes", "/" * 7_500
    yield "a name of 2,500 escapes", "%41" * 2_500
    yield "a name of 2,500 zero bytes", "%00" * 2_500
    yield "a name of 2,500 bytes that are no text", "%ff" * 2_500
    yield "a broken escape", "x" * 7_000 + "%"
    yield "artifacts in artifacts", "runs/0/artifacts/" * 400


def attacks(route: Mapping[str, Any], prefix: str) -> Iterator[Hostile]:
    """Every hostile request to one route."""
    method = route["method"].upper()
    template = prefix + route["route"]
    parameters = re.findall(r"<(\w+)>", template)

    def target(**changed: str) -> str:
        return re.sub(r"<(\w+)>", lambda match: changed.get(match[1], _SEGMENTS.get(match[1], "x")), template)

    for what, body in bodies():
        yield Hostile(what, method, target(), {"Content-Type": "application/json"}, body)
    for what, header in authorizations():
        yield Hostile(what, method, target(), {"Authorization": header})
    for what, query in queries():
        yield Hostile(what, method, f"{target()}?{query}", {})
    for what, segment in segments():
        for parameter in parameters:
            yield Hostile(f"{parameter}: {what}", method, target(**{parameter: segment}), {})


class Server:
    """``legacy-queue serve`` on memory storage, alone with its requests."""

    def __init__(self, line: Line) -> None:
        url = urlsplit(line["baseUrl"])
        self._address, self._pid = (url.hostname or "", url.port or 80), process_of(line)

    def routes(self) -> list[dict[str, Any]]:
        """Those of the reference that the server gives of itself."""
        answer = self._answer(Hostile("", "GET", "/references/queue/v1/api.json", {}))
        return list(json.loads(answer.partition(b"\r\n\r\n")[2])["entries"])

    def cost(self, hostile: Hostile) -> Cost:
        """The cost of this request alone: no other request runs."""
        before = self._cpu()
        answer = self._answer(hostile)
        seconds = self._cpu() - before
        status = int(answer.split()[1]) if answer else 0
        return Cost(hostile.what, status, seconds, len(answer))

    def _answer(self, hostile: Hostile) -> bytes:
        headers = {"Host": "localhost", "Connection": "close", "Content-Length": len(hostile.body)}
        lines = [f"{name}: {value}\r\n" for name, value in {**headers, **hostile.headers}.items()]
        head = f"{hostile.method} {hostile.target} HTTP/1.1\r\n{''.join(lines)}\r\n"
        answer = b""
        with socket.create_connection(self._address, timeout=120) as connection:
            with suppress(OSError):  # it was answered before all of it was read
                connection.sendall(head.encode("latin-1") + hostile.body)
            with suppress(ConnectionResetError):
                while part := connection.recv(_MB):
                    answer += part
                    if b"text/event-stream" in answer:
                        break
        if b"text/event-stream" in answer:
            time.sleep(_STREAM_ENDS)
        return answer

    def _cpu(self) -> float:
        """Seconds that the process has computed so far."""
        tasks = Path(f"/proc/{self._pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def main() -> int:
    """Measure, print, and say whether all of it stays below the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=100, help="ms of the server's processor time")
    parser.add_argument("--bytes", type=int, default=16 * 1024, help="of an answer")
    options = parser.parse_args()
    failed, sent = [], 0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), "--storage", "memory") as (line, _):
        server = Server(line)
        ping = Hostile("ping", "GET", "/v1/ping", {})
        pings = sorted(server.cost(ping).seconds for _ in range(50))
        usual = pings[len(pings) // 2]
        print(f"a ping costs {1000 * usual:.2f} ms of the server's processor time\n")
        print(f"{'route':<72} {'status':>6} {'ms':>7} {'pings':>6} {'bytes':>6}  its dearest request")
        routes = [(route, "/v1") for route in server.routes()] + [(route, "") for route in _BESIDE]
        for route, prefix in routes:
            costs = []
            for hostile in attacks(route, prefix):
                cost = server.cost(hostile)
                for _ in range(_TRIES - 1):
                    if 1000 * cost.seconds > options.limit:
                        cost = min(cost, server.cost(hostile), key=lambda cost: cost.seconds)
                costs.append(cost)
            sent += len(costs)
            name = f"{route['method'].upper()} {prefix}{route['route']}"
            failed += [
                (name, cost)
                for cost in costs
                if 1000 * cost.seconds > options.limit or cost.size > options.bytes or cost.status >= 500
            ]
            _print(name, max(costs, key=lambda cost: cost.seconds), usual)
    print(f"\n{sent} requests, {len(failed)} over {options.limit:g} ms or {options.bytes} bytes, or a 5xx")
    for name, cost in failed:
        _print(name, cost, usual)
    return 1 if failed else 0


def _print(name: str, cost: Cost, usual: float) -> None:
    figures = f"{1000 * cost.seconds:>7.1f} {cost.seconds / usual:>6.0f} {cost.size:>6}"
    print(f"{name:<72} {cost.status:>6} {figures}  {cost.what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
