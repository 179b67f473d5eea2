"""The API methods that a worker calls, and the messages of the Azure queues that it polls.

The worker uses its own credentials to poll and to claim. It uses the temporary credentials of a claim to
reclaim, to create artifacts and to report; each reclaim renews them. Signed URLs and pop receipts are
secrets: no error and no repr contains one.
"""

import base64
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import IO, Any
from urllib.parse import quote
from xml.etree import ElementTree

import requests

from legacy_queue.credentials import ANONYMOUS, Credentials
from legacy_queue.worker.worker_settings import WorkerSettings

TIMEOUT = (5.0, 25.0)  # seconds to connect, and to wait for the answer
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each retry

Claim = Mapping[str, Any]  # the answer of claimTask, or an item of claimWork's ``tasks``


class Unavailable(Exception):
    """The queue did not answer, or answered with a 5xx. The same request may succeed later."""


class Refused(Exception):
    """The queue answered with a status from 300 to 499. It would refuse the same request again."""


@dataclass(frozen=True)
class PolledMessage:
    """A ``<QueueMessage>``. ``text`` is base64 of JSON: ``{"taskId", "runId", "signature"}``."""

    message_id: str
    receipt: str = field(repr=False)
    text: str = field(repr=False)

    def work(self) -> dict[str, Any] | None:
        """Returns the JSON in the text, or None if it names no run of a task."""
        try:
            work: dict[str, Any] = json.loads(base64.b64decode(self.text, validate=True))
            is_run = re.fullmatch("[A-Za-z0-9_-]{22}", work["taskId"]) and type(work["runId"]) is int
            return work if is_run else None
        except (KeyError, TypeError, ValueError, RecursionError):
            return None

    @property
    def proof(self) -> dict[str, str]:
        """The parameters of claimTask that prove, in the draft protocol, that the worker has the message."""
        work = self.work() or {}
        signature = {"signature": work["signature"]} if "signature" in work else {}
        return {"messageId": self.message_id, "receipt": self.receipt, **signature}

    def delete_url(self, urls: Mapping[str, str]) -> str:
        """The URL that deletes the message. It encodes the receipt: Azure would read its ``+`` as a space."""
        url = urls["signedDeleteUrl"].replace("{{messageId}}", quote(self.message_id, safe=""))
        return url.replace("{{popReceipt}}", quote(self.receipt, safe=""))


class _WithoutDocumentType(ElementTree.TreeBuilder):
    """Refuses XML with a document type, which could declare entities, files and URLs. Azure sends none."""

    def doctype(self, *_declared: str | None) -> None:
        raise ElementTree.ParseError("expected XML without a document type")


def parse_messages(xml: bytes) -> list[PolledMessage]:
    """Returns the messages of a ``<QueueMessagesList>``. Raises ElementTree.ParseError."""
    parser = ElementTree.XMLParser(target=_WithoutDocumentType())  # noqa: S314 - it refuses document types
    names = ("MessageId", "PopReceipt", "MessageText")
    messages = ElementTree.fromstring(xml, parser).findall("QueueMessage")  # noqa: S314 - that parser is safe
    return [PolledMessage(*(message.findtext(name, "") for name in names)) for message in messages]


class QueueClient:
    """Sends requests, and retries them until ``give_up`` is set.

    Every method raises Refused at once for a 3xx or 4xx. It raises Unavailable if the retries did not help.
    """

    def __init__(self, settings: WorkerSettings, give_up: Event) -> None:
        self._settings = settings
        self._name = {"workerGroup": settings.worker_group, "workerId": settings.worker_id}
        self._give_up = give_up

    def poll_task_urls(self) -> tuple[Sequence[Mapping[str, str]], datetime]:
        """Returns the signed URLs of the pool's queues, highest priority first, and when they expire."""
        answer = self._call(f"/poll-task-url/{self._settings.pool}", method="GET")
        return answer["queues"], datetime.fromisoformat(answer["expires"])

    def poll(self, urls: Mapping[str, str]) -> PolledMessage | None:
        """Receive a message, which hides it from other workers. Returns None if there is none."""
        answer = self._send("poll", "GET", f"{urls['signedPollUrl']}&numofmessages=1")
        try:
            return next(iter(parse_messages(answer.content)), None)
        except ElementTree.ParseError:
            raise Unavailable("poll: the answer is not XML") from None

    def delete(self, urls: Mapping[str, str], message: PolledMessage) -> None:
        self._send("delete", "DELETE", message.delete_url(urls))

    def claim_task(self, message: PolledMessage, proof: Mapping[str, str]) -> Claim:
        """Claim the run that the message names. The queue may give the worker a later run of the task."""
        if not (work := message.work()):
            raise Refused("the message names no task")
        path = f"/task/{work['taskId']}/runs/{work['runId']}/claim"
        return dict(self._call(path, json={**self._name, **proof}))

    def claim_work(self) -> Claim | None:
        """Claim a task. The queue waits 2 s for one instead of 20 s, so that the worker can stop quickly."""
        body = {**self._name, "tasks": 1}
        answer = self._call(f"/claim-work/{self._settings.pool}", json=body, headers={"Prefer": "wait=2"})
        return next(iter(answer["tasks"]), None)

    def reclaim_task(self, claim: Claim) -> Claim:
        """Return the claim with a later ``takenUntil`` and new credentials. Does not retry."""
        return {**claim, **self._call(f"{run_path(claim)}/reclaim", claim, pauses=())}

    def report(self, claim: Claim, result: str, reason: str | None) -> None:
        """Call reportCompleted, reportFailed or, with a reason, reportException."""
        self._call(f"{run_path(claim)}/{result}", claim, json={"reason": reason} if reason else None)

    def create_artifact(self, claim: Claim, name: str, content: IO[bytes], content_type: str) -> None:
        """Create an artifact that expires with the task, and stream its content."""
        path = f"{run_path(claim)}/artifacts/{quote(name, safe='')}"  # the name is one segment of the path
        body = {"storageType": "s3", "expires": claim["task"]["expires"], "contentType": content_type}
        put_url = self._call(path, claim, json=body)["putUrl"]
        self._send("upload", "PUT", put_url, content=content, headers={"Content-Type": content_type})

    def _call(self, path: str, claim: Claim | None = None, method: str = "POST", **options: Any) -> Any:
        """Send a request as the claim, or else as the worker. Returns the JSON of the answer."""
        own = Credentials.from_wire(claim["credentials"]) if claim else self._settings.credentials
        url = self._settings.base_url.rstrip("/") + path
        answer = self._send(path, method, url, own.sign, **options)
        try:
            return answer.json()
        except ValueError:  # for example from a proxy
            raise Unavailable(f"{path}: the answer is not JSON") from None

    def _send(
        self,
        name: str,
        method: str,
        url: str,
        auth: Any = ANONYMOUS.sign,
        pauses: Any = PAUSES,
        content: IO[bytes] | None = None,
        **options: Any,
    ) -> requests.Response:
        """Return an answer with a 2xx. Each attempt is signed anew. Errors show ``name``, never the URL."""
        options = {"auth": auth, "allow_redirects": False, **options}
        for pause in (*pauses, None):
            if content:
                # requests would send an empty file in chunks, but the queue needs its length
                options["data"] = content if content.seek(0, os.SEEK_END) else b""
                content.seek(0)
            try:
                answer = requests.request(method, url, timeout=TIMEOUT, **options)
            except requests.RequestException as broken:
                failure = f"no answer ({type(broken).__name__}; for an SSLError see legacy-queue ca)"
            else:
                if answer.status_code < 300:
                    return answer
                failure = f"{answer.status_code} {_reason(answer)}"
                if answer.status_code < 500:
                    raise Refused(f"{name}: {failure}")
            if pause is None or self._give_up.wait(pause):
                break
        raise Unavailable(f"{name}: {failure}")


def run_path(claim: Claim) -> str:
    return f"/task/{claim['status']['taskId']}/runs/{claim['runId']}"


def _reason(answer: requests.Response) -> str:
    """Returns the first line of the queue's error message (the rest repeats the request), or Azure's code."""
    try:
        return str(answer.json()["message"]).partition("\n")[0]
    except (ValueError, LookupError, TypeError):
        return answer.headers.get("x-ms-error-code", "")
