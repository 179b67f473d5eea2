"""Storage operations of each call, counted where they leave the process; run by scripts/operations.

"cold" is a call of a process that does not remember the task: another replica's, or after a restart.
Where its queue is new to the process too, that is made.
"The same" remembers the task from before the other replica changed it: the write finds out.
"""

import argparse
import base64
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from lxml import etree
from werkzeug.test import Client

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azurite import Azurite
from legacy_queue.config import Settings, complete
from legacy_queue.domain.events import Event
from legacy_queue.domain.hawk import SignedRequest, sign_header
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Broker
from legacy_queue.wiring import build

WORKER = {"workerGroup": "group", "workerId": "worker"}
_RESOLVING = ("/completed", "/cancel")


class Confirming(Broker):
    """A broker that confirms everything: publishing is no storage operation."""

    def publish(self, events: Sequence[Event]) -> None:
        """Confirmed."""

    def check(self) -> None:
        """Always reachable."""

    def follow(self, exchange: str | None, pattern: str) -> Generator[Event | None]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to release."""


class Replica:
    """A server of its own on the shared storage, called without a network between."""

    def __init__(self, settings: Settings) -> None:
        server = build(settings, "http://localhost", broker=Confirming())
        assert isinstance(server.storage.account, AzureAccount)
        self.counts = server.storage.account.operations
        self.services, self.background = server.services, server.background
        server.storage.account.check()
        self._client, self._credentials = Client(server.app), settings.clients[0]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer, which must not be an error."""
        data = b"" if body is None else json.dumps(body).encode()
        who, request = self._credentials, SignedRequest(method, path, "localhost", 80)
        authorization = sign_header(request, who.client_id, who.access_token, datetime.now(UTC), slugid())
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        answer = self._client.open(path, method=method, data=data, headers=headers)
        assert answer.status_code in (200, 204, 303), answer.text
        return answer.json

    def put(self, url: str, content: bytes) -> str:
        """The ETag of an upload."""
        path = url.removeprefix("http://localhost")
        answer = self._client.put(path, data=content, content_type="text/plain")
        assert answer.status_code == 200, answer.text
        return answer.headers["etag"]


def definition(task_group_id: str, **more: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "provisionerId": "prov",
        "workerType": "type",
        "taskGroupId": task_group_id,
        "created": format_time(now),
        "deadline": format_time(now + timedelta(hours=2)),
        "payload": {},
        "metadata": {
            "name": "n",
            "description": "d",
            "owner": "o@example.com",
            "source": "https://example.com",
        },
        **more,
    }


def polled(urls: Any) -> dict[str, Any]:
    """What a claim presents of the next message."""
    for queue in urls["queues"]:
        for message in etree.fromstring(requests.get(queue["signedPollUrl"], timeout=10).content):
            fields = {field.tag: field.text or "" for field in message}
            signature = json.loads(base64.b64decode(fields["MessageText"]))["signature"]
            return {"messageId": fields["MessageId"], "receipt": fields["PopReceipt"], "signature": signature}
    raise LookupError("no message")


@contextmanager
def azurite_settings() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory() as folder:
        settings = complete(Settings(data_dir=Path(folder)))
        with Azurite(Path(folder) / "azurite") as azurite:
            yield replace(settings, storage="azure", connection_string=azurite.connection_string)


class Table:
    """Prints what each call costs: what goes out before its answer, and what the background does after."""

    def __init__(self) -> None:
        print(f"{'call':<52} {'operations':>10}  budget  of the background, at once")

    def __call__(self, what: str, budget: str, replica: Replica, *call: Any) -> Any:
        before = replica.counts.copy()
        answer = replica.call(*call)
        by_service = replica.counts - before
        if call[1].endswith(_RESOLVING):
            replica.services.resolver.handle_all()
        after = replica.counts - before - by_service
        shown = ", ".join(f"{service} {verb} {n}" for (service, verb), n in sorted(by_service.items()))
        print(f"{what:<52} {by_service.total():>10}  {budget:<7} {after.total() or '':<3} {shown}")
        return answer


def calls(settings: Settings) -> None:
    """Each call. It shares the operations of a timer and of a group's step with concurrent calls."""
    replica, other = Replica(settings), Replica(settings)
    for each in replica, other:  # the internal queues are made when they are first used
        first = f"/v1/task/{slugid()}"
        each.call("PUT", first, {**definition(slugid()), "workerType": "another"})
        each.call("POST", f"{first}/runs/0/claim", WORKER)
        each.call("POST", f"{first}/runs/0/completed")
        each.services.resolver.handle_all()
    count = Table()
    group, task, cold, last, alone = (slugid() for _ in range(5))
    path = f"/v1/task/{task}"
    urls = count("pollTaskUrls, first of a worker type", "-", replica, "GET", "/v1/poll-task-url/prov/type")
    count("pollTaskUrls, again", "-", replica, "GET", "/v1/poll-task-url/prov/type")
    own = {**definition(alone), "workerType": "another"}
    count("createTask, a group of its own", "3", replica, "PUT", f"/v1/task/{alone}", own)
    count("createTask, new group", "-", replica, "PUT", path, definition(group))
    count("createTask, same group", "4", replica, "PUT", f"/v1/task/{cold}", definition(group))
    waiting = definition(group, dependencies=[task, cold])
    count("createTask, 2 dependencies", "-", replica, "PUT", f"/v1/task/{last}", waiting)
    count("createTask, again", "-", replica, "PUT", path, replica.call("GET", path))
    count("status", "-", replica, "GET", f"{path}/status")
    run = f"{path}/runs/0"
    claim = {**WORKER, **polled(urls)}
    count("claimTask (draft)", "3", replica, "POST", f"{run}/claim", claim)
    count("claimTask again, same worker", "-", replica, "POST", f"{run}/claim", claim)
    count("reclaimTask", "2", replica, "POST", f"{run}/reclaim")
    count("reportCompleted, one dependent that waits for more", "3", replica, "POST", f"{run}/completed")
    run = f"/v1/task/{cold}/runs/0"
    count("claimTask (deployed), cold, its queue too", "5", other, "POST", f"{run}/claim", WORKER)
    count("reclaimTask, remembered from before the claim", "3", replica, "POST", f"{run}/reclaim")
    report = {"reason": "worker-shutdown"}
    count("reportException with a retry, cold", "-", other, "POST", f"{run}/exception", report)
    count("cancelTask, the same", "-", replica, "POST", f"/v1/task/{cold}/cancel")
    count("rerunTask", "-", replica, "POST", f"/v1/task/{cold}/rerun")
    count("scheduleTask, of a task that waits", "-", replica, "POST", f"/v1/task/{last}/schedule")
    defined = definition(group)
    count("defineTask", "-", replica, "POST", f"/v1/task/{slugid()}/define", defined)
    count("listTaskGroup, 4 tasks", "-", replica, "GET", f"/v1/task-group/{group}/list")
    count("listDependentTasks, 1 task", "-", replica, "GET", f"{path}/dependents")
    count("pendingTasks", "-", replica, "GET", "/v1/pending/prov/type")


def waiting(settings: Settings) -> None:
    """claimWork: a receive for each queue that was not empty a moment ago, then as claimTask."""
    replica, other = Replica(settings), Replica(settings)
    count, group, path = Table(), slugid(), "/v1/claim-work/prov/waited-for"

    def create(tasks: int) -> None:
        for _ in range(tasks):
            replica.call("PUT", f"/v1/task/{slugid()}", definition(group, workerType="waited-for"))

    create(33)
    count("claimWork, nothing known of queues and quarantine", "-", replica, "POST", path, WORKER)
    count("claimWork", "4", replica, "POST", path, WORKER)
    count("claimWork, 31 tasks", "94", replica, "POST", path, {**WORKER, "tasks": 31})
    create(1)
    count("claimWork, cold", "-", other, "POST", path, WORKER)
    count("claimWork, 20 s without work", "-", replica, "POST", path, WORKER)


def artifacts(settings: Settings) -> None:
    """Signing a URL is none; the bytes are what is sent to it."""
    replica, count, task = Replica(settings), Table(), slugid()
    run, content = f"/v1/task/{task}/runs/0", b"the bytes of a blob"
    replica.call("PUT", f"/v1/task/{task}", definition(task))
    replica.call("POST", f"{run}/claim", WORKER)
    expires, sha256 = format_time(datetime.now(UTC) + timedelta(hours=1)), hashlib.sha256(content).hexdigest()
    text = {"contentType": "text/plain"}
    blob = {**text, "contentLength": len(content), "contentSha256": sha256}
    types: dict[str, dict[str, Any]] = {
        "s3": text,
        "azure": text,
        "reference": {**text, "url": "https://example.com"},
        "error": {"reason": "file-missing-on-worker", "message": "m"},
        "blob": blob,
    }
    for storage_type, more in types.items():
        body = {"storageType": storage_type, "expires": expires, **more}
        path = f"{run}/artifacts/public%2F{storage_type}"
        answer = count(f"createArtifact, {storage_type}", "-", replica, "POST", path, body)
    count("createArtifact, blob, again", "-", replica, "POST", path, body)
    etags = [replica.put(answer["requests"][0]["url"], content)]
    count("completeArtifact", "-", replica, "PUT", path, {"etags": etags})
    count("getArtifact", "-", replica, "GET", path)
    count("getLatestArtifact", "-", replica, "GET", f"/v1/task/{task}/artifacts/public%2Fblob")
    count("listArtifacts, 5", "-", replica, "GET", f"{run}/artifacts")
    count("reportCompleted, with a blob", "-", replica, "POST", f"{run}/completed")


def workers(settings: Settings) -> None:
    """The background writes the records of workers that claim and poll, every ten seconds at most."""
    replica, count = Replica(settings), Table()
    pool = "/v1/provisioners/prov/worker-types/known"

    def flush(what: str, budget: str) -> None:
        before = replica.counts.copy()
        replica.services.workers.flush()
        print(f"{what:<52} {'':>10}  {budget:<7} {(replica.counts - before).total()}")

    for number in range(100):
        task = f"/v1/task/{slugid()}"
        replica.call("PUT", task, definition(slugid(), workerType="known"))
        replica.call("POST", f"{task}/runs/0/claim", {**WORKER, "workerId": f"w{number % 10}"})
    flush("100 claims of 10 new workers", "24")
    replica.services.workers.flush()
    for number in range(10):
        replica.services.workers.record_activity("prov", "known", Worker("group", f"w{number}"))
    flush("10 workers that poll, again", "0")
    for claim in range(100):
        worker = Worker("group", f"w{claim % 10}")
        replica.services.workers.record_claims("prov", "known", worker, [(slugid(), 0)])
    flush("100 claims of 10 workers, again", "10")
    until = {"quarantineUntil": format_time(datetime.now(UTC) + timedelta(days=1))}
    count("declareProvisioner", "-", replica, "PUT", "/v1/provisioners/prov", {"description": "d"})
    count("declareWorkerType", "-", replica, "PUT", pool, {"description": "d"})
    count("declareWorker", "-", replica, "PUT", f"{pool}/group/w0", {"expires": until["quarantineUntil"]})
    count("quarantineWorker", "-", replica, "PUT", f"{pool}/workers/group/w0", until)
    count("getProvisioner", "-", replica, "GET", "/v1/provisioners/prov")
    count("getWorkerType", "-", replica, "GET", pool)
    count("getWorker", "-", replica, "GET", f"{pool}/workers/group/w0")
    count("listProvisioners", "-", replica, "GET", "/v1/provisioners")
    count("listWorkerTypes", "-", replica, "GET", "/v1/provisioners/prov/worker-types")
    count("listWorkers, 10 workers", "-", replica, "GET", f"{pool}/workers")
    count("pendingTasks", "-", replica, "GET", "/v1/pending/prov/known")
    count("pendingTasks, within 2 s", "0", replica, "GET", "/v1/pending/prov/known")


def latency(settings: Settings, rounds: int) -> None:
    """From the request reportCompleted to the dependent's being pending, in one process with resolvers."""
    replica = Replica(settings)
    replica.background.start()
    report_alone, until_pending = [], []
    for _ in range(rounds):
        required, dependent = slugid(), slugid()
        replica.call("PUT", f"/v1/task/{required}", definition(required))
        waiting = definition(required, dependencies=[required])
        replica.call("PUT", f"/v1/task/{dependent}", waiting)
        replica.call("POST", f"/v1/task/{required}/runs/0/claim", WORKER)
        begun = time.perf_counter()
        replica.call("POST", f"/v1/task/{required}/runs/0/completed")
        report_alone.append(time.perf_counter() - begun)
        while replica.call("GET", f"/v1/task/{dependent}/status")["status"]["state"] != "pending":
            pass
        until_pending.append(time.perf_counter() - begun)
    replica.background.stop()
    ratio = statistics.median(u / a for u, a in zip(until_pending, report_alone, strict=True))
    print(
        f"\nreportCompleted to its dependent's being pending, median of {rounds}: "
        f"{1000 * statistics.median(until_pending):.1f} ms, {ratio:.1f} times the call itself"
    )


def idle(settings: Settings, minutes: float) -> None:
    """What an idle server asks of storage, counted once it has backed off, and a day of it."""
    replica = Replica(settings)
    replica.background.start()
    time.sleep(60)  # to back off
    before = replica.counts.copy()
    time.sleep(60 * minutes)
    counted = (replica.counts - before).total()
    replica.background.stop()
    a_day = counted * 24 * 60 / minutes
    print(f"\nidle for {minutes:g} minutes: {counted} operations, which is {a_day:,.0f} a day")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="of the latency (default 30)")
    parser.add_argument(
        "--idle", type=float, metavar="MINUTES", help="also count an idle server's for so long"
    )
    options = parser.parse_args()
    with azurite_settings() as settings:
        calls(settings)
        waiting(settings)
        artifacts(settings)
        workers(settings)
        latency(settings, options.rounds)
        if options.idle:
            idle(settings, options.idle)


if __name__ == "__main__":
    main()
