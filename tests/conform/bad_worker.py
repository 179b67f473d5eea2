"""A small worker that breaks one rule: ``bad_worker.py RULE POOL GROUP ID PROTOCOL``.

``generic-worker`` in place of a rule makes it one that reclaims as generic-worker does. The queue and the
credentials are in the environment, as ``legacy-queue conform`` sets it.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import requests
import taskcluster
from lxml import etree

setattr(base64, "encodestring", base64.encodebytes)  # noqa: B010  which the client needs; gone since Python 3.9

FAULTS = (
    "keep-the-message",
    "keep-the-message-after-a-5xx",
    "go-on-after-a-failed-delete",
    "wait-for-the-answer",
    "reclaim-again",
    "use-the-newest-credentials",
    "stop-on-a-409",
    "repeat-a-lost-report",
)
NEVER = timedelta(days=1)


class TooLong(Exception):
    """The worker does not wait for the answer."""


def client(credentials: dict[str, str], retries: int = 0) -> Any:
    url = os.environ["LEGACY_QUEUE_BASE_URL"]
    return taskcluster.Queue({"baseUrl": url, "credentials": credentials, "maxRetries": retries})


class BadWorker:
    def __init__(self, rule: str, pool: str, group: str, worker_id: str, protocol: str) -> None:
        self._rule = rule
        self._pool = pool.split("/")
        self._name = {"workerGroup": group, "workerId": worker_id}
        self._protocol = protocol
        names = {"clientId": "TASKCLUSTER_CLIENT_ID", "accessToken": "TASKCLUSTER_ACCESS_TOKEN"}
        self._queue = client({name: os.environ[variable] for name, variable in names.items()})

    def work(self) -> None:
        while True:
            for claim in self._asked() if self._protocol == "claimwork" else self._polled():
                self._run(claim)
            time.sleep(1)

    def _asked(self) -> list[Any]:
        def give_up(*_: object) -> None:
            raise TooLong

        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, 0.7)
        try:
            return list(self._queue.claimWork(*self._pool, {**self._name, "tasks": 1})["tasks"])
        except TooLong:
            return []
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _polled(self) -> Iterator[Any]:
        for urls in self._queue.pollTaskUrls(*self._pool)["queues"]:
            for message in etree.fromstring(requests.get(urls["signedPollUrl"], timeout=60).content):
                message_id, receipt = message.findtext("MessageId", ""), message.findtext("PopReceipt", "")
                work = json.loads(base64.b64decode(message.findtext("MessageText", "")))
                url = urls["signedDeleteUrl"].replace("{{messageId}}", message_id)
                url = url.replace("{{popReceipt}}", quote(receipt, safe=""))
                proof = {"messageId": message_id, "receipt": receipt, "signature": work["signature"]}
                body = self._name | (proof if self._protocol == "draft" else {})
                call = work["taskId"], str(work["runId"]), body
                try:
                    claim = self._queue.claimTask(*call)
                except taskcluster.exceptions.TaskclusterFailure:
                    if self._rule != "keep-the-message-after-a-5xx":
                        continue
                    requests.delete(url, timeout=60)
                    claim = client(self._queue.options["credentials"], retries=5).claimTask(*call)
                if self._protocol == "deployed" or self._rule == "keep-the-message":
                    has_failed = not requests.delete(url, timeout=60).ok
                    if has_failed and self._rule == "go-on-after-a-failed-delete":
                        time.sleep(NEVER.total_seconds())
                yield claim

    def _run(self, claim: Any) -> None:
        run = claim["status"]["taskId"], str(claim["runId"])
        own = client(claim["credentials"])
        command = claim["task"]["payload"]["command"]
        reclaim_at = self._reclaim_time(claim)
        if isinstance(command, list) and isinstance(command[0], list):  # generic-worker has several
            [command] = command
        if not isinstance(command, list):
            own.reportException(*run, {"reason": "malformed-payload"})
            return
        with subprocess.Popen(command, start_new_session=True) as process:
            while process.poll() is None:
                time.sleep(0.1)
                if datetime.now(UTC) >= reclaim_at:
                    try:
                        claim = own.reclaimTask(*run)
                    except taskcluster.exceptions.TaskclusterFailure:
                        if self._rule != "stop-on-a-409":
                            os.killpg(process.pid, signal.SIGKILL)
                            return
                    if self._rule != "use-the-newest-credentials":
                        own = client(claim["credentials"])
                    is_last = self._rule in ("stop-on-a-409", "reclaim-again")
                    reclaim_at = reclaim_at + NEVER if is_last else self._reclaim_time(claim)
        with suppress(taskcluster.exceptions.TaskclusterFailure):  # and does not try again
            (own.reportFailed if process.returncode else own.reportCompleted)(*run)

    def _reclaim_time(self, claim: Any) -> datetime:
        taken_until = datetime.fromisoformat(claim["takenUntil"])
        left = taken_until - datetime.now(UTC)
        if self._rule != "generic-worker":
            return taken_until - left / 3
        if left < timedelta(minutes=3, seconds=25):  # version 8 panics, at 3m30s
            sys.exit(2)
        return taken_until - timedelta(minutes=3)


if __name__ == "__main__":
    BadWorker(*sys.argv[1:]).work()
