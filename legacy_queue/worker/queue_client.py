"""The queue's methods that a worker calls, and the messages of the Azure queues that it polls.

The worker's own credentials poll and claim. The temporary credentials of a claim, which each reclaim renews,
reclaim, create artifacts and report. Signed URLs and receipts are secrets: no error and no repr has one.
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

TIMEOUT = (5.0, 25.0)  # seconds to connect, and until the answer
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each repetition

Claim = Mapping[str, Any]  # the answer of claimTask, or an item of claimWork's ``tasks``


class Unavailable(Exception):
    """No answer, or a 5xx: the same request may succeed later."""


class Refused(Exception):
    """An answer from 300 to 499: the same request would be refused again."""


@dataclass(frozen=True)
class PolledMessage:
    """A ``<QueueMessage>``. ``text`` is base64 of the JSON ``{"taskId", "runId", "signature"}``."""

    message_id: str
    receipt: str = field(repr=False)
    text: str = field(repr=False)

    def work(self) -> dict[str, Any] | None:
        """The JSON of the text; None if it names no run of a task."""
        try:
            work: dict[str, Any] = json.loads(base64.b64decode(self.text, validate=True))
            is_run = re.fullmatch("[A-Za-z0-9_-]{22}", work["taskId"]) and type(work["runId"]) is int
            return work if is_run else None
        except (KeyError, TypeError, ValueError, RecursionError):
            return None

    @property
    def proof(self) -> dict[str, str]:
        """The parameters of a draft worker's claimTask, which show that it holds the message."""
        work = self.work() or {}
        signature = {"signature": work["signature"]} if "signature" in work else {}
        return {"messageId": self.message_id, "receipt": self.receipt, **signature}

    def delete_url(self, urls: Mapping[str, str]) -> str:
        """The URL that deletes the message. A receipt may hold ``+``, which Azure would read as a space."""
        url = urls["signedDeleteUrl"].replace("{{messageId}}", quote(self.message_id, safe=""))
        return url.replace("{{popReceipt}}", quote(self.receipt, safe=""))


class _WithoutDocumentType(ElementTree.TreeBuilder):
    """Refuses a document type, and so each entity, file and URL that one declares. Azure sends none."""

    def doctype(self, *_declared: str | None) -> None:
        raise ElementTree.ParseError("a document type")


def parse_messages(xml: bytes) -> list[PolledMessage]:
    """The messages of a ``<QueueMessagesList>``. Raises ElementTree.ParseError, also for a document type."""
    parser = ElementTree.XMLParser(target=_WithoutDocumentType())  # noqa: S314 - without document type
    names = ("MessageId", "PopReceipt", "MessageText")
    messages = ElementTree.fromstring(xml, parser).findall("QueueMessage")  # noqa: S314 - by that parser
    return [PolledMessage(*(message.findtext(name, "") for name in names)) for message in messages]


class QueueClient:
    """Sends requests, and repeats them where that can help until ``give_up`` is set.

    Every method raises Refused for a 3xx or 4xx, which is never repeated, and Unavailable in the end.
    """

    def __init__(self, settings: WorkerSettings, give_up: Event) -> None:
        self._settings = settings
        self._name = {"workerGroup": settings.worker_group, "workerId": settings.worker_id}
        self._give_up = give_up

    def poll_task_urls(self) -> tuple[Sequence[Mapping[str, str]], datetime]:
        """The signed URLs of the pool's queues, the highest priority first, and when they expire."""
        answer = self._call(f"/poll-task-url/{self._settings.pool}", method="GET")
        return answer["queues"], datetime.fromisoformat(answer["expires"])

    def poll(self, urls: Mapping[str, str]) -> PolledMessage | None:
        """Receive a message, which is hidden from other workers from then on; None if there is none."""
        answer = self._send("poll", "GET", f"{urls['signedPollUrl']}&numofmessages=1")
        try:
            return next(iter(parse_messages(answer.content)), None)
        except ElementTree.ParseError:
            raise Unavailable("poll: the answer is not XML") from None

    def delete(self, urls: Mapping[str, str], message: PolledMessage) -> None:
        self._send("delete", "DELETE", message.delete_url(urls))

    def claim_task(self, message: PolledMessage, proof: Mapping[str, str]) -> Claim:
        """Claim the run that the message names. The claim may be of a later run of the task."""
        if not (work := message.work()):
            raise Refused("the message names no task")
        path = f"/task/{work['taskId']}/runs/{work['runId']}/claim"
        return dict(self._call(path, json={**self._name, **proof}))

    def claim_work(self) -> Claim | None:
        """Claim a task. The queue waits 2 s for one here, not 20 s, so that the worker can stop soon."""
        body = {**self._name, "tasks": 1}
        answer = self._call(f"/claim-work/{self._settings.pool}", json=body, headers={"Prefer": "wait=2"})
        return next(iter(answer["tasks"]), None)

    def reclaim_task(self, claim: Claim) -> Claim:
        """The claim with a later ``takenUntil`` and new credentials; one attempt."""
        return {**claim, **self._call(f"{run_path(claim)}/reclaim", claim, pauses=())}

    def report(self, claim: Claim, result: str, reason: str | None) -> None:
        """reportCompleted, reportFailed or, with its reason, reportException."""
        self._call(f"{run_path(claim)}/{result}", claim, json={"reason": reason} if reason else None)

    def create_artifact(self, claim: Claim, name: str, content: IO[bytes], content_type: str) -> None:
        """Create an artifact that expires with the task, and upload it, without reading it whole."""
        path = f"{run_path(claim)}/artifacts/{quote(name, safe='')}"  # the name is one segment of the path
        body = {"storageType": "s3", "expires": claim["task"]["expires"], "contentType": content_type}
        put_url = self._call(path, claim, json=body)["putUrl"]
        self._send("upload", "PUT", put_url, content=content, headers={"Content-Type": content_type})

    def _call(self, path: str, claim: Claim | None = None, method: str = "POST", **options: Any) -> Any:
        """The JSON of the answer to a request that the claim's credentials sign, or else the worker's own."""
        own = Credentials.from_wire(claim["credentials"]) if claim else self._settings.credentials
        url = self._settings.base_url.rstrip("/") + path
        answer = self._send(path, method, url, own.sign, **options)
        try:
            return answer.json()
        except ValueError:  # of a proxy, for example
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
        """The answer with a 2xx. Each attempt is signed again; errors have the name in place of the URL."""
        options = {"auth": auth, "allow_redirects": False, **options}
        for pause in (*pauses, None):
            if content:
                # requests would send an empty file in chunks, without the length that is needed
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
    """The first line of the queue's message, which repeats the request below it; or Azure's code."""
    try:
        return str(answer.json()["message"]).partition("\n")[0]
    except (ValueError, LookupError, TypeError):
        return answer.headers.get("x-ms-error-code", "")
