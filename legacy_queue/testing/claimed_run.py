"""Claims in each of the three protocols, and the calls that a claim allows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, get_args
from urllib.parse import quote

from legacy_queue.credentials import Credentials
from legacy_queue.domain.times import parse_time
from legacy_queue.queue_client import QueueClient, RequestFailed
from legacy_queue.testing.wire_types import Status
from legacy_queue.worker.queue_client import parse_messages

__tracebackhide__ = True  # so that a traceback ends at the test's own call

ClaimProtocol = Literal["claimwork", "draft", "deployed"]
Resolution = Literal["completed", "failed", "exception"]


def require_one_of(literal: Any, name: str, value: str) -> None:
    """Raises ValueError if the value is not one of the Literal."""
    if value not in get_args(literal):
        raise ValueError(f"{name} is {value!r}: expected one of {', '.join(get_args(literal))}")


@dataclass(frozen=True)
class ClaimedRun:
    """A claimed run of a task. The claim lasts until ``taken_until``.

    ``credentials`` are the temporary credentials of the claim, in the form that Taskcluster's clients take.
    All calls about the run are signed with them. ``task`` is the definition of the task.
    """

    task_id: str
    run_id: int
    taken_until: datetime
    task: Mapping[str, Any] = field(repr=False)
    credentials: Mapping[str, str] = field(repr=False)
    _http: QueueClient = field(repr=False)

    def report(self, resolution: Resolution, reason: str | None = None) -> Status:
        """Call reportCompleted, reportFailed or, with a reason, reportException. Returns the status."""
        require_one_of(Resolution, "resolution", resolution)
        body = {"reason": reason} if reason else None
        status: Status = self._call("POST", f"/{resolution}", body)["status"]
        return status

    def reclaim(self) -> "ClaimedRun":
        """Call reclaimTask. Returns the claim with its later ``taken_until`` and its new credentials."""
        answer = self._call("POST", "/reclaim", None)
        taken_until = parse_time(answer["takenUntil"])
        return replace(self, taken_until=taken_until, credentials=answer["credentials"])

    def create_artifact(
        self, name: str, content: bytes, content_type: str = "application/octet-stream"
    ) -> None:
        """Create an artifact of storage type s3 that expires with the task, and upload its content."""
        body = {"storageType": "s3", "expires": self.task["expires"], "contentType": content_type}
        created = self._call("POST", f"/artifacts/{quote(name, safe='')}", body)
        headers = {"Content-Type": content_type}
        self._http.send("PUT", created["putUrl"], data=content, headers=headers)

    def _call(self, method: str, path: str, body: Any) -> Any:
        run = f"/v1/task/{self.task_id}/runs/{self.run_id}"
        own = Credentials.from_wire(self.credentials)
        return self._http.call(method, run + path, body, credentials=own)


def claim_work(http: QueueClient, pool: str, worker: Mapping[str, str]) -> ClaimedRun | None:
    """Claim by claimWork, without waiting for work. Returns None if there is no work."""
    headers = {"Prefer": "wait=0"}
    claims = http.call("POST", f"/v1/claim-work/{pool}", {**worker, "tasks": 1}, headers=headers)["tasks"]
    return _claimed_run(claims[0], http) if claims else None


def poll(http: QueueClient, pool: str, worker: Mapping[str, str], is_draft: bool) -> ClaimedRun | None:
    """Poll the pool's Azure queues, the highest priority first, and claim the task of the first message.

    Returns None if there is no message. In the deployed protocol, the message is deleted after the queue's
    answer, unless that is a 5xx. If a message names no task, it is deleted, and the next queue is polled.
    """
    for urls in http.call("GET", f"/v1/poll-task-url/{pool}")["queues"]:
        for message in parse_messages(http.send("GET", f"{urls['signedPollUrl']}&numofmessages=1").content):
            work: Any = message.work()
            if work is None:
                http.send("DELETE", message.delete_url(urls))
                continue
            path = f"/v1/task/{work['taskId']}/runs/{work['runId']}/claim"
            try:
                claim = http.call("POST", path, {**worker, **(message.proof if is_draft else {})})
            except RequestFailed as refused:
                if not is_draft and refused.status < 500:
                    http.send("DELETE", message.delete_url(urls))
                raise
            if not is_draft:
                http.send("DELETE", message.delete_url(urls))
            return _claimed_run(claim, http)
    return None


def _claimed_run(claim: Mapping[str, Any], http: QueueClient) -> ClaimedRun:
    """The claim in an answer of claimTask, or in an item of ``tasks`` in an answer of claimWork."""
    task_id = claim["status"]["taskId"]
    taken_until = parse_time(claim["takenUntil"])
    return ClaimedRun(task_id, claim["runId"], taken_until, claim["task"], claim["credentials"], http)
