"""The queue's methods that a worker calls, each request signed with Hawk.

The worker's own credentials poll and claim. The temporary credentials of a claim, which each reclaim renews,
reclaim, create artifacts and report. Every method raises Refused for a 4xx, which is never repeated, and
Unavailable for any other failure after the last attempt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from legacy_queue.worker.http_client import Http, Unavailable
from legacy_queue.worker.polled_queue import PolledQueue
from legacy_queue.worker.worker_settings import Credentials, WorkerClock, WorkerSettings


@dataclass(frozen=True)
class Claim:
    """The exclusive right to run one run of one task until ``taken_until``."""

    task_id: str
    run_id: int
    taken_until: datetime
    expires: str  # of the task: its artifacts expire with it
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
            task_id=claim["status"]["taskId"],
            run_id=claim["runId"],
            taken_until=datetime.fromisoformat(claim["takenUntil"]),
            expires=claim["task"]["expires"],
            payload=claim["task"]["payload"],
            credentials=Credentials.from_wire(claim["credentials"]),
        )


class QueueClient:
    """The queue, for all threads of a worker; ``http`` is for the Azure queues too."""

    def __init__(self, settings: WorkerSettings, clock: WorkerClock) -> None:
        self.http = Http(clock)
        self.close = self.http.close
        self._clock, self._settings = clock, settings
        self._base_url = settings.base_url.rstrip("/")
        self._pool = f"{settings.provisioner_id}/{settings.worker_type}"

    def poll_task_urls(self) -> tuple[list[PolledQueue], datetime]:
        """The queues of the worker type, the highest priority first, and when their signed URLs expire."""
        answer = self._call("pollTaskUrls", f"/poll-task-url/{self._pool}", method="GET")
        queues = [PolledQueue(urls["signedPollUrl"], urls["signedDeleteUrl"]) for urls in answer["queues"]]
        return queues, datetime.fromisoformat(answer["expires"])

    def claim_task(self, task_id: str, run_id: int, body: Mapping[str, str]) -> Claim:
        """Claim a run. The claim may be of a later run of the task: use ``claim.run_id``."""
        return Claim.from_wire(self._call("claimTask", f"/task/{task_id}/runs/{run_id}/claim", json=body))

    def claim_work(self, body: Mapping[str, Any]) -> list[Claim]:
        """Claims on at most ``body["tasks"]`` pending tasks; the queue may wait 20 s before it gives none."""
        claims = self._call("claimWork", f"/claim-work/{self._pool}", json=body)["tasks"]
        return list(map(Claim.from_wire, claims))

    def reclaim_task(self, claim: Claim) -> Claim:
        """The same claim with a later ``taken_until`` and new credentials in place of the old."""
        answer = self._call("reclaimTask", f"{claim.path}/reclaim", claim.credentials)
        credentials = Credentials.from_wire(answer["credentials"])
        return replace(
            claim, taken_until=datetime.fromisoformat(answer["takenUntil"]), credentials=credentials
        )

    def report(self, claim: Claim, result: str, reason: str | None = None) -> None:
        """reportCompleted, reportFailed or, with its reason, reportException."""
        name, body = f"report{result.capitalize()}", {"reason": reason} if reason else None
        self._call(name, f"{claim.path}/{result}", claim.credentials, json=body)

    def create_artifact(self, claim: Claim, name: str, file: Path, content_type: str) -> None:
        """Create an artifact that expires with the task, and upload the file without reading it into memory.

        Raises OSError if the file cannot be read.
        """
        path = f"{claim.path}/artifacts/{quote(name, safe='')}"  # the name is one segment of the path
        body = {"storageType": "s3", "expires": claim.expires, "contentType": content_type}
        with file.open("rb") as content:
            put_url = self._call("createArtifact", path, claim.credentials, json=body)["putUrl"]
            data = content if file.stat().st_size else b""  # requests would send an empty file chunked
            headers = {"Content-Type": content_type}
            self.http.send("PUT", "PUT", put_url, data=data, headers=headers)

    def _call(
        self,
        name: str,
        path: str,
        credentials: Credentials | None = None,
        method: str = "POST",
        **options: Any,
    ) -> Any:
        """The JSON of the answer. Without ``credentials`` the worker's own sign."""
        sign = (credentials or self._settings.credentials).hawk(self._clock.now)
        answer = self.http.send(name, method, self._base_url + path, sign=sign, **options)
        try:
            return answer.json()
        except ValueError:
            raise Unavailable(f"{name}: the answer is not JSON") from None
