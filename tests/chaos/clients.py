"""Clients that record each answer, and schedulers as threads.

Like real clients, they repeat a request after a 5xx and after a broken connection, at any of the servers. A
task's payload says what a worker does with its runs: ``plan`` has a step for each run, and its last step is
for all later runs.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import requests

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.worker import Credentials

from .record import RETRIES, Json, Record, Resolution
from .servers import Server

ROOT = {"clientId": "root", "accessToken": slugid() + slugid()}
PROVISIONER, WORKER_TYPE, NO_WORKERS = "chaos", "worker", "no-workers"

_TIMEOUT = 30.0  # seconds to wait for an answer, as the JavaScript client does
_SHORT = 15.0  # seconds until the deadline of a task that no worker takes

# The plans of 100 tasks; the scheduler carries out "cancel"
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
class LoadContext:
    """Shared by all clients. ``is_over`` ends them; ``lasts`` is the time until a deadline, in seconds."""

    record: Record
    servers: Sequence[Server]
    is_over: threading.Event
    claim_timeout: float
    lasts: float


class Caller:
    """A client with its own connections."""

    def __init__(self, context: LoadContext, seed: str) -> None:
        self.context, self.chance = context, random.Random(seed)
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
        """Status and body of the first answer below 500; None after the last try, and after the load."""
        record = self.context.record
        for attempt in range(tries):
            if attempt:
                self.context.is_over.wait(min(2.0, 0.1 * 2 ** min(attempt, 5)) * self.chance.uniform(0.5, 1))
            ready = [(server, url) for server in self.context.servers if (url := server.root_url)]
            if self.context.is_over.is_set():
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
        sign = Credentials.from_wire(credentials).hawk(lambda: datetime.now(UTC))
        try:
            answer = self.session.request(method, url, json=body, auth=sign, timeout=_TIMEOUT)
            return answer.status_code, answer.json() if answer.content else {}
        except (requests.RequestException, ValueError):
            return 0, {}

    def refused(self, task_id: str, endpoint: str, answer: Answer) -> None:
        """Record an answer that must never be."""
        message = str(answer[1].get("message", answer[1])).partition("\n")[0]
        self.context.record.refusals.append((task_id, f"{endpoint} was answered {answer[0]}: {message}"))

    def resolved(self, status: Json) -> None:
        """Record the run that an answer shows as resolved."""
        run, record = status["runs"][-1], self.context.record
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
    """Creates ``rate`` tasks a second, in groups; some depend on others."""

    def run(self, rate: float, lasts: float) -> None:
        end, tasks = time.monotonic() + lasts, self._tasks()
        while (began := time.monotonic()) < end:
            self._create(*next(tasks))
            self.context.is_over.wait(
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
            body["dependencies"] = [task_id for task_id, _ in required]
            is_met = all(last == "completed" for _, last in required)
            body["requires"] = "all-completed" if is_met else "all-resolved"
        is_defined_first = self.chance.random() < 0.1
        if is_defined_first:
            answer = self.call("defineTask", f"/task/{task_id}/define", body)
        else:
            answer = self.call("createTask", f"/task/{task_id}", body, method="PUT")
        if not self._is_good(task_id, "createTask", answer):
            return
        self.context.record.groups[task_id] = group
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
        lasts = _SHORT if is_forgotten else self.context.lasts
        return {
            "provisionerId": PROVISIONER,
            "workerType": NO_WORKERS if is_forgotten else WORKER_TYPE,
            "schedulerId": "chaos",
            "taskGroupId": group,
            "priority": self.chance.choice(["high", "medium", "lowest"]),
            "retries": RETRIES,
            "created": format_time(now),
            "deadline": format_time(now + timedelta(seconds=lasts)),
            "expires": format_time(now + timedelta(seconds=self.context.lasts, days=1)),
            "payload": {"plan": plan},
            "metadata": {
                "name": "a task",
                "description": " ".join(plan),
                "owner": "owner@example.com",
                "source": "https://example.com/source",
            },
        }
