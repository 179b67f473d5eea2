"""The queue's methods that a worker calls, each request signed with Hawk.

The worker's own credentials poll and claim. The temporary credentials of a claim, which each reclaim renews,
reclaim, create artifacts and report. Every method raises Refused for a 4xx, which is never repeated, and
Unavailable for any other failure after the last attempt. An answer that is not as documented raises what
reading it raises (KeyError, TypeError, ValueError ...); it counts as no answer.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import IO, Any
from urllib.parse import quote

from legacy_queue.worker.http_client import UPLOAD_TIMEOUT, Http
from legacy_queue.worker.polled_queue import PolledMessage, PolledQueue, parse_messages
from legacy_queue.worker.worker_settings import Context, Credentials

NEVER = threading.Event()  # when to give up
AT_ONCE = threading.Event()  # when to give up
AT_ONCE.set()


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
            taken_until=_time(claim["takenUntil"]),
            expires=claim["task"]["expires"],
            payload=claim["task"]["payload"],
            credentials=Credentials.from_wire(claim["credentials"]),
        )


def _time(text: Any) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


class QueueClient:
    """The queue and its Azure queues, for one loop or one task of a worker."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._clock = context.clock
        self._settings = settings
        self._http = Http(context.clock, context.stopping)
        self.close = self._http.close
        self._base_url = settings.base_url.rstrip("/")
        self._pool = f"{settings.provisioner_id}/{settings.worker_type}"

    def poll_task_urls(self) -> tuple[list[PolledQueue], datetime]:
        """The queues of the worker type, the highest priority first, and when their signed URLs expire."""
        answer = self._call("pollTaskUrls", f"/poll-task-url/{self._pool}", method="GET")
        return [PolledQueue.from_wire(urls) for urls in answer["queues"]], _time(answer["expires"])

    def poll(self, azure_queue: PolledQueue) -> PolledMessage | None:
        """Receive a message; None if there is none. Refused means that only new URLs can help."""
        messages = parse_messages(self._http.send("poll", azure_queue.poll_url, "GET").content)
        return messages[0] if messages else None

    def delete(self, azure_queue: PolledQueue, message: PolledMessage) -> None:
        """Delete the message from its queue."""
        self._http.send("delete", azure_queue.delete_url(message), "DELETE")

    def claim_task(self, task_id: str, run_id: int, body: Mapping[str, str]) -> Claim:
        """Claim a run. The claim may be of a later run of the task: use ``claim.run_id``."""
        return Claim.from_wire(self._call("claimTask", f"/task/{task_id}/runs/{run_id}/claim", json=body))

    def claim_work(self, name: Mapping[str, str]) -> Claim | None:
        """Claim a pending task for the worker of this name; None if none is pending.

        The queue's long poll lasts 2 s here, not 20 s: the worker can stop soon.
        """
        body = {**name, "tasks": 1}
        answer = self._call("claimWork", f"/claim-work/{self._pool}", json=body, headers={"Prefer": "wait=2"})
        return Claim.from_wire(answer["tasks"][0]) if answer["tasks"] else None

    def reclaim_task(self, claim: Claim) -> Claim:
        """The same claim with a later ``taken_until`` and new credentials; one attempt."""
        answer = self._call("reclaimTask", f"{claim.path}/reclaim", claim.credentials, give_up=AT_ONCE)
        credentials = Credentials.from_wire(answer["credentials"])
        return replace(claim, taken_until=_time(answer["takenUntil"]), credentials=credentials)

    def report(self, claim: Claim, result: str, reason: str | None) -> None:
        """reportCompleted, reportFailed or, with its reason, reportException. Repeated after a stop too."""
        body = {"reason": reason} if reason else None
        name = f"report{result.capitalize()}"
        self._call(name, f"{claim.path}/{result}", claim.credentials, json=body, give_up=NEVER)

    def create_artifact(self, claim: Claim, name: str, file: IO[bytes], content_type: str) -> None:
        """Create an artifact that expires with the task, and upload the file."""
        path = f"{claim.path}/artifacts/{quote(name, safe='')}"  # the name is one segment of the path
        body = {"storageType": "s3", "expires": claim.expires, "contentType": content_type}
        put_url = self._call("createArtifact", path, claim.credentials, json=body)["putUrl"]
        headers = {"Content-Type": content_type}
        self._http.send("PUT", put_url, "PUT", timeout=UPLOAD_TIMEOUT, file=file, headers=headers)

    def _call(self, name: str, path: str, credentials: Credentials | None = None, **options: Any) -> Any:
        """The JSON of the answer. Without ``credentials`` the worker's own sign."""
        sign = (credentials or self._settings.credentials).hawk(self._clock.now)
        return self._http.send(name, self._base_url + path, sign=sign, **options).json()
