"""The queue's methods that a worker calls, each request signed with Hawk.

The worker's own credentials poll and claim. The temporary credentials of a claim, which each reclaim renews,
reclaim, create artifacts and report. Every method raises Refused for a 4xx, which is never repeated, and
Unavailable for any other failure after the last attempt, also for an answer that is not as documented.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import quote

from legacy_queue.worker.http_client import UPLOAD_TIMEOUT, Content, Http, Unavailable
from legacy_queue.worker.polled_queue import PolledQueue
from legacy_queue.worker.worker_settings import Context, Credentials

NEVER = threading.Event()  # when to give up
AT_ONCE = threading.Event()  # when to give up
AT_ONCE.set()

T = TypeVar("T")
Read = Callable[[Any], T]  # raises what a malformed answer makes it raise


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
    """The queue, for one loop or one task of a worker; ``http`` is for the Azure queues too."""

    def __init__(self, context: Context) -> None:
        self._clock, self._settings = context.clock, (settings := context.settings)
        self.http = Http(context.clock, context.stopping)
        self.close = self.http.close
        self._base_url = settings.base_url.rstrip("/")
        self._pool = f"{settings.provisioner_id}/{settings.worker_type}"

    def poll_task_urls(self) -> tuple[list[PolledQueue], datetime]:
        """The queues of the worker type, the highest priority first, and when their signed URLs expire."""

        def read(answer: Any) -> tuple[list[PolledQueue], datetime]:
            pairs = [(urls["signedPollUrl"], urls["signedDeleteUrl"]) for urls in answer["queues"]]
            return [PolledQueue(str(poll), str(delete)) for poll, delete in pairs], _time(answer["expires"])

        return self._call("pollTaskUrls", f"/poll-task-url/{self._pool}", read, method="GET")

    def claim_task(self, task_id: str, run_id: int, body: Mapping[str, str]) -> Claim:
        """Claim a run. The claim may be of a later run of the task: use ``claim.run_id``."""
        return self._call("claimTask", f"/task/{task_id}/runs/{run_id}/claim", Claim.from_wire, json=body)

    def claim_work(self, body: Mapping[str, Any]) -> list[Claim]:
        """Claims on at most ``body["tasks"]`` pending tasks, or none.

        Without the queue's long poll of 20 s: the worker can stop at once.
        """

        def read(answer: Any) -> list[Claim]:
            return [Claim.from_wire(claim) for claim in answer["tasks"]]

        no_wait = {"Prefer": "wait=0"}
        return self._call("claimWork", f"/claim-work/{self._pool}", read, json=body, headers=no_wait)

    def reclaim_task(self, claim: Claim) -> Claim:
        """The same claim with a later ``taken_until`` and new credentials; one attempt."""

        def read(answer: Any) -> Claim:
            credentials = Credentials.from_wire(answer["credentials"])
            return replace(claim, taken_until=_time(answer["takenUntil"]), credentials=credentials)

        return self._call("reclaimTask", f"{claim.path}/reclaim", read, claim.credentials, give_up=AT_ONCE)

    def report(self, claim: Claim, result: str, reason: str | None = None) -> None:
        """reportCompleted, reportFailed or, with its reason, reportException. Repeated after a stop too."""
        name = f"report{result.capitalize()}"
        body = {"reason": reason} if reason else None
        path = f"{claim.path}/{result}"
        self._call(name, path, lambda _: None, claim.credentials, json=body, give_up=NEVER)

    def create_artifact(self, claim: Claim, name: str, content: Content, content_type: str) -> None:
        """Create an artifact that expires with the task, and upload its content."""
        path = f"{claim.path}/artifacts/{quote(name, safe='')}"  # the name is one segment of the path
        body = {"storageType": "s3", "expires": claim.expires, "contentType": content_type}
        put_url = self._call("createArtifact", path, itemgetter("putUrl"), claim.credentials, json=body)
        data = content or b""  # requests would send an empty file chunked
        headers = {"Content-Type": content_type}
        self.http.send("PUT", put_url, "PUT", timeout=UPLOAD_TIMEOUT, data=data, headers=headers)

    def _call(
        self, name: str, path: str, read: Read[T], credentials: Credentials | None = None, **options: Any
    ) -> T:
        """What ``read`` makes of the answer's JSON. Without ``credentials`` the worker's own sign."""
        sign = (credentials or self._settings.credentials).hawk(self._clock.now)
        answer = self.http.send(name, self._base_url + path, sign=sign, **options)
        try:
            return read(answer.json())
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            raise Unavailable(f"{name}: the answer is not as documented") from None
