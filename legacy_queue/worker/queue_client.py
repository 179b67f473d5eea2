"""The queue's methods that a worker calls, each request signed with Hawk.

The worker's own credentials poll and claim. The temporary credentials of a claim, which each reclaim renews,
reclaim, create artifacts and report. Every method raises QueueRefused for a 4xx, which is never repeated, and
Unavailable for any other failure after the last attempt.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote

import requests

from legacy_queue.worker.http_client import LONG_POLL, UPLOAD, Content, Http, Unavailable
from legacy_queue.worker.polled_queue import PolledQueue
from legacy_queue.worker.worker_settings import Context, Credentials

REFRESH_MARGIN = timedelta(minutes=5)

Answer = TypeVar("Answer")


class QueueRefused(Exception):
    """The queue refused, with a status from 300 to 499, and would refuse the same request again.

    ``detail`` is the first line of the queue's message; the original queue repeats the request below it.
    """

    def __init__(self, method: str, answer: requests.Response) -> None:
        try:
            body = answer.json()
        except ValueError:
            body = None
        fields = body if isinstance(body, dict) else {}
        self.status = answer.status_code
        self.code = str(fields.get("code", ""))[:64]
        self.detail = str(fields.get("message", "")).partition("\n")[0][:300]
        super().__init__(f"{method}: {self.status} {self.code}: {self.detail}")


@dataclass(frozen=True)
class PollUrls:
    """Where to poll, the highest priority first, and when to request new URLs."""

    queues: tuple[PolledQueue, ...]
    expires: datetime
    refresh_at: datetime


@dataclass(frozen=True)
class Claim:
    """The exclusive right to run one run of one task until ``taken_until``."""

    task_id: str
    run_id: int
    taken_until: datetime
    expires: datetime  # of the task: none of its artifacts may outlive it
    payload: Any = field(repr=False)  # task.payload, which the queue does not validate
    credentials: Credentials = field(repr=False)

    @property
    def run(self) -> dict[str, Any]:
        """The fields that name the run in a step."""
        return {"task_id": self.task_id, "run_id": self.run_id}

    @property
    def path(self) -> str:
        """The path of the run, below the queue's base URL."""
        return f"/task/{self.task_id}/runs/{self.run_id}"

    @classmethod
    def from_wire(cls, claim: Any) -> "Claim":
        """Read an answer of claimTask, or an item of claimWork's ``tasks``."""
        return cls(
            task_id=str(claim["status"]["taskId"]),
            run_id=int(claim["runId"]),
            taken_until=_time(claim["takenUntil"]),
            expires=_time(claim["task"]["expires"]),
            payload=claim["task"]["payload"],
            credentials=Credentials.from_wire(claim["credentials"]),
        )


class QueueClient:
    """The queue, for one thread, which must close this. Repeats no request after ``give_up`` is set."""

    def __init__(self, context: Context, give_up: threading.Event) -> None:
        settings = context.settings
        self.http = Http(context.clock, give_up)
        self.close = self.http.close
        self._clock, self._credentials = context.clock, settings.credentials
        self._base_url = settings.base_url.rstrip("/")
        self._pool = f"{settings.provisioner_id}/{settings.worker_type}"

    def poll_task_urls(self) -> PollUrls:
        """The signed URLs of all queues of the worker type, to be requested again at ``refresh_at``.

        That is five minutes before they expire, or half way if they live for less than ten minutes.
        """
        now = self._clock.now()

        def read(answer: Any) -> PollUrls:
            expires = _time(answer["expires"])
            queues = [
                PolledQueue(urls["signedPollUrl"], urls["signedDeleteUrl"]) for urls in answer["queues"]
            ]
            refresh_at = expires - min(REFRESH_MARGIN, max((expires - now) / 2, timedelta(0)))
            return PollUrls(tuple(queues), expires, refresh_at)

        return self._call("pollTaskUrls", f"/poll-task-url/{self._pool}", read, method="GET")

    def claim_task(self, task_id: str, run_id: int, body: Mapping[str, str]) -> Claim:
        """Claim a run. The claim may be of a later run of the task: use ``claim.run_id``."""
        return self._call("claimTask", f"/task/{task_id}/runs/{run_id}/claim", Claim.from_wire, json=body)

    def claim_work(self, body: Mapping[str, Any]) -> list[Claim]:
        """Claims on at most ``body["tasks"]`` pending tasks; the queue may wait 20 s before it gives none."""

        def read(answer: Any) -> list[Claim]:
            return [Claim.from_wire(claim) for claim in answer["tasks"]]

        return self._call("claimWork", f"/claim-work/{self._pool}", read, json=body, timeout=LONG_POLL)

    def reclaim_task(self, claim: Claim) -> Claim:
        """The same claim with a later ``taken_until`` and new credentials in place of the old."""

        def read(answer: Any) -> Claim:
            credentials = Credentials.from_wire(answer["credentials"])
            return replace(claim, taken_until=_time(answer["takenUntil"]), credentials=credentials)

        return self._call("reclaimTask", f"{claim.path}/reclaim", read, claim.credentials)

    def report(self, claim: Claim, result: str, reason: str | None = None) -> None:
        """reportCompleted, reportFailed or, with its reason, reportException."""
        name, body = f"report{result.capitalize()}", {"reason": reason} if reason else None
        self._call(name, f"{claim.path}/{result}", lambda _: None, claim.credentials, json=body)

    def create_artifact(self, claim: Claim, name: str, artifact: Mapping[str, Any]) -> str | None:
        """Create it, or replace a reference; returns the URL to upload to if ``storageType`` is s3."""

        def read(answer: Any) -> str | None:
            return str(answer["putUrl"]) if artifact["storageType"] == "s3" else None

        # a single segment of the path; as bytes, since a file's name need not be text
        path = f"{claim.path}/artifacts/{quote(os.fsencode(name), safe='')}"
        return self._call("createArtifact", path, read, claim.credentials, json=artifact)

    def upload(self, put_url: str, content: Content, content_type: str) -> None:
        """PUT the content; after a 5xx again from its start."""
        data = content or b""  # requests would send an empty file chunked
        self._send("PUT", "PUT", put_url, data=data, headers={"Content-Type": content_type}, timeout=UPLOAD)

    def artifact_url(self, claim: Claim, name: str) -> str:
        """The URL of a public artifact."""
        return f"{self._base_url}{claim.path}/artifacts/{quote(name)}"

    def _call(
        self,
        name: str,
        path: str,
        read: Callable[[Any], Answer],
        credentials: Credentials | None = None,
        method: str = "POST",
        **options: Any,
    ) -> Answer:
        """Return what ``read`` makes of the answer. Without ``credentials`` the worker's own sign."""
        sign = (credentials or self._credentials).hawk(self._clock.now)
        answer = self._send(name, method, self._base_url + path, sign=sign, **options)
        try:
            return read(answer.json())
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise Unavailable(f"{name}: the answer is not as documented") from None

    def _send(self, name: str, method: str, url: str, **options: Any) -> requests.Response:
        try:
            answer = self.http.send(method, url, **options)
        except Unavailable as failure:
            raise Unavailable(f"{name}: {failure}") from None
        if not 200 <= answer.status_code < 300:
            raise QueueRefused(name, answer)
        return answer


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError
    return time
