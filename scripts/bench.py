"""Measures how fast the server is, compared with the floor of its storage and with another revision.

scripts/bench runs it. A cycle is createTask, claimTask and reportCompleted. Clients in this process run
cycles in closed loops. Each side that is compared has its own server. The sides take turns, in rounds, on the
same machine. So compare the ratios of one run, never the figures of two runs. Costs are for one cycle:
requests to Azurite by method and name, and ms of CPU, including this process ("load"). What a server does
after a pause counts for its next load.

The parts are:

- cycle: each storage, two processes, the floor, and "hello", a bare Flask on the same gunicorn worker. With
  one client it also shows the cost of each call.
- growth: embedded storage with many tasks in it.
- waiting: claimWork.
- page: the page is open in a browser. The browser needs CPU as well, so compare the CPU of the servers.
- start: CPU and memory of all processes of a command when it is ready. The first round writes the bytecode.

Options after -- go to `legacy-queue serve`.
"""

import argparse
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pygal
from azure.storage.queue import generate_account_sas

from legacy_queue.credentials import Credentials
from legacy_queue.domain.hawk import SignedRequest, sign_header
from legacy_queue.domain.ids import slugid
from legacy_queue.queue_client import QueueClient
from legacy_queue.testing.definitions import PROVISIONER_ID, definition

ROOT = Path(__file__).resolve().parents[1]
WORKER = {"workerGroup": "bench", "workerId": "bench"}
CYCLE = ("createTask", "claimTask", "reportCompleted")
SIDES = {
    "embedded": "embedded",
    "2 processes": "embedded --workers 2",
    "memory": "memory",
    "azurite": "azurite --azurite-default-account",
}
RATIOS = {
    "embedded": ("memory", "hello"),
    "2 processes": ("embedded",),
    "azurite": ("floor/1", "floor/8"),
    "page open": ("embedded",),
}
# for `start`: the command, and what its ready line contains; None if the command just ends
STARTS = {
    "serve": ("serve --storage memory --port 0", '"rootUrl"'),
    "up": ("up --port 0", "The queue is up"),
    "serve --help": ("serve --help", None),
}
BROWSER = "chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-port=0"

# This code is loaded into Azurite. It counts requests by method and name of table or queue, and GET /counts
# answers with the counts.
COUNT_REQUESTS = """
const { Server } = require("node:http"), { emit } = Server.prototype, counts = {};
Server.prototype.emit = function (event, request, response) {
  if (event === "request" && request.url === "/counts") return response.end(JSON.stringify(counts));
  const name = event === "request" && request.url.split(/[/?(]/)[2];
  const what = name && `${request.method} ${name.length > 20 ? "work" : name}`;
  if (what) counts[what] = (counts[what] ?? 0) + 1;
  return emit.apply(this, arguments);
};
"""
# The minimum of storage requests for a cycle, in the server's order: service, method, path, body. Concurrent
# calls share the SHARED requests. Source: docs/explanation/architecture.md#what-a-call-costs.
ROW = f'{{"PartitionKey": "KEY", "RowKey": "task", "runs": "{"r" * 300}"}}'
MESSAGE = f"<QueueMessage><MessageText>{'m' * 150}</MessageText></QueueMessage>"
INSERT = ("table", "POST", "/floor?", ROW.replace("}", f', "definition": "{"d" * 1000}"}}'))
MEMBER = ("table", "POST", "/floor?", ROW.replace("task", "member"))
MERGE = ("table", "PATCH", "/floor(PartitionKey='KEY',RowKey='task')?", ROW)
WORK = ("queue", "POST", "/floor/messages?", MESSAGE)
NAMED = ("table", "PUT", "/floor(PartitionKey='KEY',RowKey='process')?", ROW.replace("task", "process"))
HOLD = ("queue", "POST", "/floor/messages?visibilitytimeout=1200&", MESSAGE)
DELETE = ("queue", "DELETE", "/floor/messages/MessageId?popreceipt=PopReceipt&", "")
MAKE = (("queue", "PUT", "/floor?", ""), ("table", "POST", "/Tables?", '{"TableName": "floor"}'))
FLOOR = {
    "createTask": (INSERT, WORK, MEMBER),
    "claimTask": (NAMED, HOLD, MERGE),
    "reportCompleted": (MERGE, DELETE),
}
SHARED = (NAMED,)
VERSION = {"x-ms-version": "2019-02-02", "Accept": "application/json;odata=nometadata"}
WRITE = {"Content-Type": "application/json", "Prefer": "return-no-content"}
HEADERS = {"queue": VERSION, "table": {**VERSION, **WRITE}}


class Side:
    """Something that can be put under load."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._connections: dict[tuple[int, str], HTTPConnection] = {}

    def _send(self, slot: int, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> bytes:
        """Return the body of a successful answer. Each slot is a client and keeps its connections."""
        host = urlsplit(url).netloc
        connection = self._connections.setdefault((slot, host), HTTPConnection(host))
        connection.request(method, url.partition(host)[2], body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if not 200 <= answer.status < 300:
            raise RuntimeError(f"{method} {url.partition('?')[0]}: {answer.status} {content[:300]!r}")
        return content


class Server(Side):
    """`legacy-queue serve`. It is called as a worker and a scheduler call it, with Hawk."""

    def __init__(self, name: str, line: Mapping[str, Any]) -> None:
        """``line`` is what the server prints when it is ready."""
        super().__init__(name)
        self._line, self.storage = line, line["storage"]

    def call(self, what: str, slot: int, task: dict[str, Any]) -> None:
        """Make one call of a cycle. ``task`` keeps what the next call needs."""
        task_id, pool = task.setdefault("taskId", slugid()), task.setdefault("pool", "cycle")
        match what:
            case "createTask":
                body = definition(datetime.now(UTC), {"worker_type": pool})
                self._call(slot, "PUT", f"/task/{task_id}", body)
            case "claimTask":
                task |= self._call(slot, "POST", f"/task/{task_id}/runs/0/claim", WORKER)
            case "reportCompleted":
                self._call(slot, "POST", f"/task/{task_id}/runs/0/completed", {}, task["credentials"])
            case "claimWork":
                self._call(slot, "POST", f"/claim-work/{PROVISIONER_ID}/{pool}", {**WORKER, "tasks": 1})

    def page_link(self) -> str:
        queue = QueueClient(self._line["baseUrl"], Credentials.from_wire(self._line["credentials"]))
        return queue.page_link(timedelta(hours=1))

    def _call(self, slot: int, method: str, path: str, body: Any, claim: Any = None) -> Any:
        """Return the answer. ``claim`` has the credentials of a claim, to use instead of the server's own."""
        url = urlsplit(self._line["baseUrl"] + path)
        own = Credentials.from_wire(claim or self._line["credentials"])
        request = SignedRequest(method, url.path, url.hostname or "", url.port or 80, None, None, b"")
        signed = sign_header(request, own.client_id, own.access_token, datetime.now(UTC), slugid(), own.ext)
        headers = {"Content-Type": "application/json", "Authorization": signed}
        return json.loads(self._send(slot, method, url.geturl(), headers, json.dumps(body).encode()))

    def spent(self) -> "Counter[str]":
        """Return what was spent so far: CPU ms by kind of process, and requests to Azurite."""
        spent: Counter[str] = Counter()
        for pid in family(self._line["pid"]):
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            spent["CPU azurite" if b"node" in program else "CPU server"] += cpu(pid)
        if table := self.storage.get("table"):
            url = urlsplit(table)._replace(path="/counts").geturl()
            spent.update(json.loads(self._send(-1, "GET", url, {})))
        return spent


class Floor(Side):
    """The operations of FLOOR, sent to a server's Azurite. ``share`` calls share one shared operation."""

    def __init__(self, server: Server, share: int) -> None:
        super().__init__(f"floor/{share}")
        self.spent, self._endpoints, self._share = server.spent, server.storage, share
        self._calls = 0
        # the account that Azurite's documentation publishes
        key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
        expiry = datetime.now(UTC) + timedelta(days=1)
        self._sas = generate_account_sas("devstoreaccount1", key, "sco", "rwdlacup", expiry, services="qt")

    def call(self, what: str, slot: int, task: dict[str, str]) -> None:
        """Send the requests of a call, one after the other. ``task`` has the values of the words in them."""
        self._calls += 1
        task.setdefault("KEY", slugid())
        for request in FLOOR[what]:
            if request in SHARED and self._calls % self._share:
                continue
            service, method, path, body = request
            for word, value in task.items():
                path, body = path.replace(word, value), body.replace(word, value)
            answer = self.send(slot, service, method, path, body)
            if request is HOLD:
                held = re.findall("<(MessageId|PopReceipt)>(.*?)<", answer)
                task |= {name: quote(value, safe="") for name, value in held}

    def send(self, slot: int, service: str, method: str, path: str, body: str) -> str:
        url = self._endpoints[service] + path + self._sas
        # with it, a PUT would not create a missing row
        condition = {"If-Match": "*"} if method == "PATCH" else {}
        return self._send(slot, method, url, {**HEADERS[service], **condition}, body.encode()).decode()


@dataclass
class Sample:
    """The result of one load: ms of each call and cycle, and the cost of all cycles.

    With one client, also what each call costs.
    """

    clients: int
    rate: float  # cycles per second
    took: Mapping[str, list[float]]
    spent: Mapping[str, "Counter[str]"]


def family(pid: int) -> list[int]:
    """Return the pids of the process and all its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(member for child in children for member in family(int(child)))]


def cpu(pid: int) -> int:
    """Return the CPU milliseconds so far, including those of ended children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) * 1000 // os.sysconf("SC_CLK_TCK")


def timed(side: Any, what: str, task: dict[str, Any], slot: int = 0) -> float:
    """Return how many milliseconds the call took."""
    began = time.perf_counter()
    side.call(what, slot, task)
    return 1000 * (time.perf_counter() - began)


def measured(side: Any, clients: int, seconds: float) -> Sample:
    """Let each client run cycles, at least one, until the time is up."""
    took: dict[str, list[float]] = {what: [] for what in ("cycle", *CYCLE)}
    spent: dict[str, Counter[str]] = {what: Counter() for what in ("cycle", *CYCLE)}
    before, own, began = side.spent(), time.process_time(), time.perf_counter()

    def client(slot: int) -> None:
        while time.perf_counter() - began < seconds or not took["cycle"]:
            task: dict[str, Any] = {}
            for what in CYCLE:
                earlier = side.spent() if clients == 1 else Counter()
                took[what].append(timed(side, what, task, slot))
                spent[what] += side.spent() - earlier if clients == 1 else earlier
            took["cycle"].append(sum(took[what][-1] for what in CYCLE))

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(client, range(clients)))
    own, after = time.process_time() - own, side.spent()
    for _ in range(20):  # wait until the server is idle, but at most 5 s
        time.sleep(0.25)
        earlier, after = after, side.spent()
        if after["CPU server"] - earlier["CPU server"] < 25:  # ms, which is a tenth of a core
            break
    spent["cycle"] = after - before + Counter({"CPU load": round(1000 * own)})
    return Sample(clients, 1000 * clients / statistics.mean(took["cycle"]), took, spent)


def figures(samples: Sequence[Sample], what: str) -> dict[str, float]:
    """Return the figures of ``cycle`` or of a call, for all rounds together."""
    took = sorted(ms for sample in samples for ms in sample.took[what])
    row = {"clients": samples[0].clients, "p50": took[len(took) // 2], "p99": took[int(len(took) * 0.99)]}
    if what == "cycle":
        row["a second"] = statistics.median(sample.rate for sample in samples)
    spent = sum((sample.spent[what] for sample in samples), Counter())
    return row | {name: total / len(took) for name, total in sorted(spent.items())}


def started(tree: Path, words: str, ready: str | None) -> tuple[int, int]:
    """Return the CPU ms until the command is ready, and the MB of its largest process at that time."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(tree), "LEGACY_QUEUE_DATA_DIR": folder}
        command = [f"{tree}/.venv/bin/python", "-P", "-m", "legacy_queue", *words.split()]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            for line in process.stdout or ():
                if ready and ready in line:
                    break
            pids = family(process.pid)
            pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
            took = sum(map(cpu, pids))
            process.terminate()
        return took, max(pages) * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def fill(file: Path, task_id: str, count: int) -> None:
    """Copy the rows of the task ``count`` times, each time with another taskId."""
    with closing(sqlite3.connect(file)) as db, db:
        rows = db.execute("SELECT * FROM rows WHERE instr(partition || ' ' || key, ?)", (task_id,)).fetchall()
        marks = ", ".join("?" * len(rows[0]))
        for new in (slugid() for _ in range(count)):
            copies = [[v.replace(task_id, new) if isinstance(v, str) else v for v in row] for row in rows]
            db.executemany(f"INSERT INTO rows VALUES ({marks})", copies)


class Bench:
    """The parts of the benchmark. Each starts what it needs, prints, and adds to ``rows``."""

    def __init__(self, options: argparse.Namespace, trees: Mapping[str, Path]) -> None:
        """``trees`` has the tree of each revision.

        The key is added to the names of its sides; "" is this one.
        """
        self._options, self._trees = options, trees
        self.rows: list[dict[str, Any]] = []

    def cycle(self) -> None:
        with ExitStack() as stack:
            started = {}
            for kind, suffix in product(SIDES, self._trees):
                started[kind + suffix] = stack.enter_context(self._server(kind, suffix))
            started["hello"] = stack.enter_context(self._server("hello"))
            # a separate Azurite, because each request costs more when more is stored
            azurite = stack.enter_context(self._server("azurite"))
            floors = [Floor(azurite, share) for share in (1, 8)]
            for request in MAKE:
                floors[0].send(0, *request)
            self._rounds("cycle", [*started.values(), *floors], self._options.clients)

    def growth(self) -> None:
        for count in self._options.tasks:
            with tempfile.TemporaryDirectory() as folder:
                task: dict[str, Any] = {}
                with self._server("embedded", "", folder) as pilot:
                    for what in CYCLE:
                        pilot.call(what, 0, task)
                fill(Path(folder, "storage.sqlite"), task["taskId"], count)
                with self._server("embedded") as empty, ExitStack() as stack:
                    began = time.perf_counter()
                    filled = stack.enter_context(self._server("embedded", "", folder))
                    filled.name = f"{count:,} tasks"
                    self._add("growth", filled.name, {"s until ready": time.perf_counter() - began})
                    self._rounds("growth", [filled, empty], self._options.clients[:2])

    def waiting(self) -> None:
        polls = self._options.polls
        for suffix in self._trees:
            with self._server("embedded", suffix) as server, ThreadPoolExecutor(polls) as threads:
                bare, reached = [], []
                for _ in range(4 * self._options.rounds):
                    bare.append(timed(server, "createTask", {}))
                    claim = threads.submit(server.call, "claimWork", 1, {"pool": "reached"})
                    time.sleep(0.05)
                    began = time.perf_counter()
                    server.call("createTask", 0, {"pool": "reached"})
                    claim.result()
                    reached.append(1000 * (time.perf_counter() - began))
                ratio = statistics.median(reached) / statistics.median(bare)
                before = server.spent()
                list(threads.map(lambda n: server.call("claimWork", n, {"pool": "idle"}), range(polls)))
                cost = (server.spent() - before)["CPU server"]
                self._add("waiting", server.name, {"claim/createTask": ratio, "polls": polls, "CPU ms": cost})

    def page(self) -> None:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
            self._server("embedded") as server,
            self._server("embedded") as shown,
        ):
            shown.name = "page open"
            command = [*BROWSER.split(), f"--user-data-dir={profile}", shown.page_link()]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as browser:
                self._rounds("page", [shown, server], self._options.clients[:2])
                time.sleep(5)  # by now the page has shown the last event
                before, seconds = shown.spent(), 20
                time.sleep(seconds)
                cost = (shown.spent() - before)["CPU server"]
                self._add("page", "page open, idle", {"s": seconds, "CPU ms": cost})
                browser.terminate()

    def start(self) -> None:
        found: dict[str, list[tuple[int, ...]]] = {}
        for _ in range(self._options.rounds + 1):
            for (name, (words, ready)), (suffix, tree) in product(STARTS.items(), self._trees.items()):
                found.setdefault(name + suffix, []).append(started(tree, words, ready))
        for name, of in found.items():
            took, size = zip(*of[1:], strict=True)
            row = {"min": min(took), "CPU ms": statistics.median(took), "max": max(took)}
            self._add("start", name, row | ({"MB": max(size)} if any(size) else {}))

    @contextmanager
    def _server(self, kind: str, suffix: str = "", data: str = "", *words: str) -> Iterator[Server]:
        """Run a server of a revision.

        Its files are in ``data``, or in a folder that is removed at the end.
        """
        with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("wb") as log:
            count, tree = Path(folder, "count.js"), self._trees[suffix]
            count.write_text(COUNT_REQUESTS)
            path = f"{tree}/azurite/node_modules/.bin:{os.environ['PATH']}"
            environment = {**os.environ, "PYTHONPATH": str(tree), "PATH": path, "NODE_OPTIONS": f"-r {count}"}
            module = ROOT / "scripts/bench_hello.py" if kind == "hello" else "-m legacy_queue"
            storage = SIDES.get(kind, "memory")
            program = f"{tree}/.venv/bin/python -P {module} serve --storage {storage} --port 0"
            command = [*program.split(), "--data-dir", data or folder, *words, *self._options.serve]
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log) as server:
                assert server.stdout
                try:
                    yield Server(kind + suffix, json.loads(server.stdout.readline()))
                finally:
                    server.terminate()

    def _rounds(self, part: str, sides: Sequence[Server | Floor], counts: Sequence[int]) -> None:
        """Load the sides in turn, so that other work of the machine affects all of them alike."""
        samples: dict[tuple[int, str], list[Sample]] = {}
        for number in range(self._options.rounds + 1):
            print(f"{part}: round {number} of {self._options.rounds}", file=sys.stderr)
            start = number % len(sides)
            for clients in counts:
                for side in (*sides[start:], *sides[:start]):
                    sample = measured(side, clients, self._options.seconds)
                    samples.setdefault((clients, side.name), []).append(sample)
        for (_, name), found in samples.items():
            del found[0]  # the first one warmed up
            for what in ("cycle", *CYCLE):
                self._add(part, f"{name} {what}", figures(found, what))
        for (clients, name), of in samples.items():
            for other in (*RATIOS.get(name, ()), *(name + suffix for suffix in self._trees if suffix)):
                to = samples.get((clients, other), ())
                if ratios := sorted(a.rate / b.rate for a, b in zip(of, to, strict=False)):
                    rates = {"min": ratios[0], "median": statistics.median(ratios), "max": ratios[-1]}
                    self._add(part, f"{name} / {other}", {"clients": clients, **rates})

    def _add(self, part: str, side: str, row: Mapping[str, float]) -> None:
        self.rows.append({"part": part, "side": side, **row})
        shown = ", ".join(f"{name} {round(value, 2):g}" for name, value in row.items())
        print(f"{part:<8}{side:<40}{shown}", flush=True)


@contextmanager
def checked_out(ref: str) -> Iterator[Path]:
    """Check out the commit in a separate worktree and install what it needs, which takes two minutes."""
    with tempfile.TemporaryDirectory() as folder:
        tree, git = Path(folder, "tree"), ("git", "-C", ROOT, "worktree")
        subprocess.run([*git, "add", "--detach", tree, ref], check=True)
        try:
            subprocess.run(["bash", "-c", ". scripts/setup.sh run azurite"], cwd=tree, check=True)
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def plot(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw the cycles per second of each side, for each number of clients."""
    found = {(row["side"], row["clients"]): row["a second"] for row in rows if "a second" in row}
    clients = sorted({number for _, number in found})
    chart = pygal.Bar(js=(), title="cycles a second", x_title="clients", x_labels=map(str, clients))
    for side in dict.fromkeys(name for name, _ in found):
        chart.add(side.removesuffix(" cycle"), [found.get((side, number)) for number in clients])
    chart.render_to_file(file)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("cycle", "growth", "waiting", "page", "start")
    add = parser.add_argument
    add("--only", nargs="+", choices=parts, default=parts)
    add("--rounds", type=int, default=5, help="rounds of each comparison (5)")
    add("--seconds", type=float, default=2, help="seconds of each load (2)")
    add(
        "--clients",
        type=int,
        nargs="+",
        metavar="N",
        default=[1, 16, 64],
        help="numbers of clients (1 16 64)",
    )
    add(
        "--tasks",
        type=int,
        nargs="+",
        metavar="N",
        default=[100, 200000],
        help="numbers of stored tasks for growth (100 200000)",
    )
    add("--polls", type=int, default=1000, help="number of polls for waiting (1000)")
    add("--compare", metavar="REF", help="also measure another revision, in the same run")
    add("--plot", type=Path, metavar="FILE", help="also draw the cycles per second, as SVG")
    add("serve", nargs="*", metavar="-- OPTION", help="options of `legacy-queue serve`")
    options = parser.parse_args()
    # if this shell forbids bytecode, each server would compile everything that it imports
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with ExitStack() as stack:
        trees = {"": ROOT}
        if options.compare:
            trees[f"@{options.compare}"] = stack.enter_context(checked_out(options.compare))
        bench = Bench(options, trees)
        for part in options.only:
            getattr(bench, part)()
    if options.plot:
        plot(bench.rows, options.plot)


if __name__ == "__main__":
    main()
