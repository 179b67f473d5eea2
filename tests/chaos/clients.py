"""Schedulers and workers of the three protocols as threads that note every answer.

They repeat a request after a 5xx and after a connection that broke, on any of the servers, as real clients
do. What a worker does with a run is written in its task's payload: ``plan`` has a step for each run, the last
one is for all that follow.
"""

import base64
import json
import random
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import requests

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.worker.hawk_auth import hawk_auth

from .checks import seconds
from .record import RETRIES, Claim, Json, Record, Resolution
from .servers import Server

ROOT = {"clientId": "root", "accessToken": slugid() + slugid()}
PROVISIONER, WORKER_TYPE, NOBODY = "chaos", "worker", "nobody"
GROUP = "chaos"  # of the workers
PROTOCOLS = ("draft", "deployed", "claimWork")

_TIMEOUT = 30.0  # seconds that a client waits for an answer: the JavaScript client's
_POLL_TIMEOUT = 10.0
_CLAIM_TRIES = 5
_IDLE = 1.0  # seconds between two polls that find nothing
_SHORT = 15.0  # seconds until the deadline of a task that no worker takes

# What becomes of a task, of 100; "cancel" is the scheduler's
_PLANS: Sequence[tuple[int, list[str]]] = (
    (58, ["completed"]),
    (8, ["failed"]),
    (12, ["drop", "completed"]),
    (4, ["drop", "drop", "completed"]),
    (6, ["worker-shutdown", "completed"]),
    (3, ["intermittent-task", "failed"]),
    (2, ["malformed-payload"]),
    (2, ["long", "completed"]),
    (3, ["cancel"]),
    (2, ["deadline"]),
)

Answer = tuple[int, Json]


@dataclass(frozen=True)
class Surroundings:
    """What all clients share. ``is_over`` ends them; ``lasts`` is how long a deadline is away, in seconds."""

    record: Record
    servers: Sequence[Server]
    is_over: threading.Event
    claim_timeout: float
    lasts: float


class Caller:
    """One client with its own connections."""

    def __init__(self, around: Surroundings, seed: str) -> None:
        self.around, self.chance = around, random.Random(seed)
        self.session = requests.Session()
        self.session.trust_env = False

    def call(
        self,
        endpoint: str,
        path: str,
        body: Any = None,
        credentials: Json | None = None,
        tries: int = 1_000_000,
        method: str = "POST",
    ) -> Answer | None:
        """Status and body of the first answer below 500; None when there was none, or all is over."""
        record = self.around.record
        for attempt in range(tries):
            if attempt:
                self.around.is_over.wait(min(2.0, 0.1 * 2 ** min(attempt, 5)) * self.chance.uniform(0.5, 1))
            ready = [(one, url) for one in self.around.servers if (url := one.root_url)]
            if self.around.is_over.is_set():
                return None
            if not ready:
                continue
            server, url = self.chance.choice(ready)
            status, answer = self._send(method, f"{url}/v1{path}", body, credentials or ROOT)
            record.answers[endpoint, status] += 1
            if status == 500:
                record.refusals.append((path, f"{endpoint} was answered 500: {answer}"))
            if 0 < status < 500:
                record.served[server.number].append(time.time())
                return status, answer
        return None

    def _send(self, method: str, url: str, body: Any, credentials: Json) -> Answer:
        ext = None
        if "certificate" in credentials:
            certificate = json.dumps({"certificate": json.loads(credentials["certificate"])})
            ext = base64.b64encode(certificate.encode()).decode()
        sign = hawk_auth(credentials["clientId"], credentials["accessToken"], ext, lambda: datetime.now(UTC))
        try:
            answer = self.session.request(method, url, json=body, auth=sign, timeout=_TIMEOUT)
            return answer.status_code, answer.json() if answer.content else {}
        except (requests.RequestException, ValueError):
            return 0, {}

    def refused(self, task_id: str, endpoint: str, answer: Answer) -> None:
        """Note an answer that should never be."""
        said = str(answer[1].get("message", answer[1])).partition("\n")[0]
        self.around.record.refusals.append((task_id, f"{endpoint} was answered {answer[0]}: {said}"))

    def resolved(self, status: Json) -> None:
        """Note the run that an answer shows as resolved."""
        run, record = status["runs"][-1], self.around.record
        record.resolutions.append(
            Resolution(
                status["taskId"],
                run["runId"],
                run.get("workerId", ""),
                run["state"],
                run["reasonResolved"],
                time.time(),
            )
        )


class Scheduler(Caller):
    """Creates tasks in groups, ``rate`` of them each second, of which some depend on others."""

    def run(self, rate: float, lasts: float) -> None:
        end, tasks = time.monotonic() + lasts, self._tasks()
        while (began := time.monotonic()) < end:
            self._create(*next(tasks))
            self.around.is_over.wait(
                max(0.0, self.chance.uniform(0.5, 1.5) / rate + began - time.monotonic())
            )

    def _tasks(self) -> Iterator[tuple[str, list[str], str, list[tuple[str, str]]]]:
        """taskId, plan, group, and the earlier tasks of the group with the last step of their plans."""
        plans = [plan for _, plan in _PLANS]
        while True:
            group, earlier = slugid(), list[tuple[str, str]]()
            for _ in range(self.chance.randint(3, 12)):
                task_id = slugid()
                [plan] = self.chance.choices(plans, [weight for weight, _ in _PLANS])
                yield task_id, plan, group, earlier
                earlier.append((task_id, plan[-1]))

    def _create(self, task_id: str, plan: list[str], group: str, earlier: list[tuple[str, str]]) -> None:
        body = self._definition(plan, group)
        if earlier and self.chance.random() < 0.25:
            required = self.chance.sample(earlier, min(len(earlier), 3))
            body["dependencies"] = [one for one, _ in required]
            is_met = all(last == "completed" for _, last in required)
            body["requires"] = "all-completed" if is_met else "all-resolved"
        is_defined_first = self.chance.random() < 0.1
        if is_defined_first:
            answer = self.call("defineTask", f"/task/{task_id}/define", body)
        else:
            answer = self.call("createTask", f"/task/{task_id}", body, method="PUT")
        if not self._is_good(task_id, "createTask", answer):
            return
        self.around.record.groups[task_id] = group
        if is_defined_first:
            self._is_good(task_id, "scheduleTask", self.call("scheduleTask", f"/task/{task_id}/schedule"))
        if plan == ["cancel"]:
            answer = self.call("cancelTask", f"/task/{task_id}/cancel")
            if self._is_good(task_id, "cancelTask", answer) and answer:
                self.resolved(answer[1]["status"])

    def _is_good(self, task_id: str, endpoint: str, answer: Answer | None) -> bool:
        if answer and answer[0] != 200:
            self.refused(task_id, endpoint, answer)
        return answer is not None and answer[0] == 200

    def _definition(self, plan: list[str], group: str) -> Json:
        now, is_forgotten = datetime.now(UTC), plan == ["deadline"]
        lasts = _SHORT if is_forgotten else self.around.lasts
        return {
            "provisionerId": PROVISIONER,
            "workerType": NOBODY if is_forgotten else WORKER_TYPE,
            "schedulerId": "chaos",
            "taskGroupId": group,
            "priority": self.chance.choice(["high", "medium", "lowest"]),
            "retries": RETRIES,
            "created": format_time(now),
            "deadline": format_time(now + timedelta(seconds=lasts)),
            "expires": format_time(now + timedelta(seconds=self.around.lasts, days=1)),
            "payload": {"plan": plan},
            "metadata": {
                "name": "a task",
                "description": " ".join(plan),
                "owner": "owner@example.com",
                "source": "https://example.com/source",
            },
        }


class Worker(Caller):
    """A worker of one protocol."""

    def __init__(self, around: Surroundings, seed: str, protocol: str, worker_id: str) -> None:
        super().__init__(around, seed)
        self._protocol, self._worker_id = protocol, worker_id
        self._urls: list[Json] = []

    def run(self) -> None:
        while not self.around.is_over.is_set():
            claims = self._claim_work() if self._protocol == "claimWork" else self._poll()
            for claim in claims:
                self._hold(claim)
            for claim in claims:
                self._work(claim)
            if not claims and self._protocol != "claimWork":
                self.around.is_over.wait(_IDLE)

    @property
    def _name(self) -> Json:
        return {"workerGroup": GROUP, "workerId": self._worker_id}

    def _claim_work(self) -> list[Json]:
        path = f"/claim-work/{PROVISIONER}/{WORKER_TYPE}"
        answer = self.call("claimWork", path, {**self._name, "tasks": self.chance.choice([1, 1, 4])})
        if answer and answer[0] != 200:
            self.refused("-", "claimWork", answer)
        return list(answer[1]["tasks"]) if answer and answer[0] == 200 else []

    def _poll(self) -> list[Json]:
        if not self._urls:
            answer = self.call(
                "pollTaskUrls",
                f"/poll-task-url/{PROVISIONER}/{WORKER_TYPE}",
                method="GET",
                tries=_CLAIM_TRIES,
            )
            self._urls = answer[1]["queues"] if answer and answer[0] == 200 else []
        for urls in self._urls:
            for message in self._messages(urls):
                if claim := self._claim(urls, message):
                    return [claim]
        return []

    def _messages(self, urls: Json) -> list[ET.Element]:
        try:
            url = f"{urls['signedPollUrl']}&numofmessages=1"
            answer = self.session.get(url, timeout=_POLL_TIMEOUT)
            self.around.record.answers["poll", answer.status_code] += 1
            return list(ET.fromstring(answer.content)) if answer.status_code == 200 else []
        except requests.RequestException:
            self.around.record.answers["poll", 0] += 1
            self.around.is_over.wait(_IDLE)
            return []

    def _claim(self, urls: Json, message: ET.Element) -> Json | None:
        content = json.loads(base64.b64decode(message.findtext("MessageText", "")))
        message_id, receipt = message.findtext("MessageId", ""), message.findtext("PopReceipt", "")
        body = dict(self._name)
        if self._protocol == "draft":
            body |= {"messageId": message_id, "receipt": receipt, "signature": content["signature"]}
        task_id, run_id = content["taskId"], content["runId"]
        answer = self.call("claimTask", f"/task/{task_id}/runs/{run_id}/claim", body, tries=_CLAIM_TRIES)
        if answer is None:
            return None
        if self._protocol == "deployed":  # also after a 4xx
            self._delete(urls, message_id, receipt)
        if answer[0] not in (200, 409):
            self.refused(task_id, f"claimTask of run {run_id}", answer)
        return answer[1] if answer[0] == 200 else None

    def _delete(self, urls: Json, message_id: str, receipt: str) -> None:
        url = urls["signedDeleteUrl"].replace("{{messageId}}", message_id)
        try:
            answer = self.session.delete(
                url.replace("{{popReceipt}}", quote(receipt, safe="")), timeout=_POLL_TIMEOUT
            )
            self.around.record.answers["delete", answer.status_code] += 1
        except requests.RequestException:
            self.around.record.answers["delete", 0] += 1

    def _hold(self, claim: Json) -> None:
        task_id, run_id = claim["status"]["taskId"], claim["runId"]
        until = seconds(claim["takenUntil"])
        self.around.record.claims.append(Claim(task_id, run_id, self._worker_id, time.time(), until))

    def _work(self, claim: Json) -> None:
        plan, run_id = claim["task"]["payload"]["plan"], claim["runId"]
        step = plan[-1] if self.around.record.is_ending else plan[min(run_id, len(plan) - 1)]
        if step == "drop":
            return
        if step == "long":
            for _ in range(4):
                self.around.is_over.wait(self.around.claim_timeout / 3)
                if not self._reclaim(claim):
                    return
            step = "completed"
        self.around.is_over.wait(self.chance.uniform(0.0, 0.6))
        if step in ("completed", "cancel"):
            self._report(claim, "completed")
        elif step == "failed":
            self._report(claim, "failed")
        else:
            self._report(claim, "exception", {"reason": step})

    def _reclaim(self, claim: Json) -> bool:
        answer = self._on_run(claim, "reclaim")
        if answer is None or answer[0] != 200:
            return False
        claim.update(takenUntil=answer[1]["takenUntil"], credentials=answer[1]["credentials"])
        self._hold(claim)
        return True

    def _report(self, claim: Json, verb: str, body: Json | None = None) -> None:
        answer = self._on_run(claim, verb, body)
        if answer and answer[0] == 200:
            status = answer[1]["status"]
            runs = status["runs"][: claim["runId"] + 1]  # a retry may follow
            self.resolved({**status, "runs": runs})

    def _on_run(self, claim: Json, verb: str, body: Json | None = None) -> Answer | None:
        """A 409 is right once the claim has ended, or the task was canceled."""
        task_id, run_id = claim["status"]["taskId"], claim["runId"]
        answer = self.call(verb, f"/task/{task_id}/runs/{run_id}/{verb}", body, claim["credentials"])
        is_held = time.time() < seconds(claim["takenUntil"]) and claim["task"]["payload"]["plan"] != [
            "cancel"
        ]
        if answer and answer[0] != 200 and (answer[0] != 409 or is_held):
            self.refused(task_id, f"{verb} of run {run_id} by {self._worker_id}", answer)
        return answer
