"""A worker like those of 2016: it polls Azure queues with signed URLs, claims, runs a command, and reports.

``python -m legacy_worker PROVISIONER WORKER_TYPE WORKER_GROUP WORKER_ID [draft | deployed]`` runs tasks until
you stop it. It reads the queue and its credentials from TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID and
TASKCLUSTER_ACCESS_TOKEN.

It does not reclaim, so a command must end within one claim.
"""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import mohawk
import requests

ATTEMPTS = 5
POLL_INTERVAL = 5.0  # seconds


class Refused(Exception):
    """The queue answered with 4xx. It would refuse the same request again."""


class Unavailable(Exception):
    """The queue answered each of five attempts with 5xx, or not at all."""


class UrlsExpired(Exception):
    """The signed URLs have expired. Call pollTaskUrls for new ones."""


class Queue:
    """Calls the queue, and signs each request with Hawk. ``sleep`` waits between two attempts."""

    def __init__(
        self, base_url: str, credentials: Mapping[str, str], sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.base_url, self._credentials, self._sleep = base_url, credentials, sleep

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Returns the JSON of the answer. Raises Refused and Unavailable."""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(2**attempt / 10)
            try:
                answer = self._send(method, self.base_url + path, body)
            except requests.ConnectionError:
                continue
            if answer.ok:
                return answer.json()
            if answer.status_code < 500:
                raise Refused(f"{method} {path}: {answer.status_code} {answer.json()['message']}")
        raise Unavailable(f"{method} {path}")

    def with_credentials(self, credentials: Mapping[str, str]) -> "Queue":
        """Returns the same queue, called with the temporary credentials of a claim."""
        return Queue(self.base_url, credentials, self._sleep)

    def _send(self, method: str, url: str, body: Mapping[str, Any] | None) -> requests.Response:
        content = "" if body is None else json.dumps(body)
        content_type = "application/json" if content else ""
        certificate = self._credentials.get("certificate")
        ext = base64.b64encode(f'{{"certificate": {certificate}}}'.encode()).decode() if certificate else None
        key = {
            "id": self._credentials["clientId"],
            "key": self._credentials["accessToken"],
            "algorithm": "sha256",
        }
        sender = mohawk.Sender(key, url, method, content=content, content_type=content_type, ext=ext)
        headers = {"Authorization": sender.request_header, "Content-Type": content_type}
        return requests.request(method, url, data=content, headers=headers, timeout=60)


@dataclass(frozen=True)
class Message:
    """A message of an Azure queue: which run to claim, and how to delete the message."""

    message_id: str
    receipt: str
    signed_delete_url: str
    task_id: str
    run_id: int
    signature: str

    def delete(self) -> None:
        """Tries to delete the message. If that fails, it comes back, and the queue refuses its claim."""
        url = self.signed_delete_url.replace("{{messageId}}", quote(self.message_id, safe=""))
        requests.delete(url.replace("{{popReceipt}}", quote(self.receipt, safe="")), timeout=60)


@dataclass
class Worker:
    """A worker. By the protocol "draft" the queue keeps a message, by "deployed" the worker deletes it."""

    queue: Queue
    provisioner_id: str
    worker_type: str
    worker_group: str
    worker_id: str
    protocol: str = "deployed"
    _urls: list[dict[str, str]] | None = None

    def run_next(self) -> str | None:
        """Claims and runs one task. Returns its taskId, or None if there is no task."""
        claim = self.claim_next()
        if claim is None:
            return None
        self.run(claim)
        return str(claim["status"]["taskId"])

    def claim_next(self) -> dict[str, Any] | None:
        """Claims the first task that it can. Returns the answer of claimTask, or None if there is no task."""
        try:
            return next(self._claims(), None)
        except UrlsExpired:
            self._urls = None
            return next(self._claims(), None)

    def run(self, claim: Mapping[str, Any]) -> None:
        """Runs the task's command and reports its result."""
        queue = self.queue.with_credentials(claim["credentials"])
        path = f"/task/{claim['status']['taskId']}/runs/{claim['runId']}"
        command = claim["task"]["payload"].get("command")
        try:
            if not (isinstance(command, list) and command and all(isinstance(word, str) for word in command)):
                queue.call("POST", f"{path}/exception", {"reason": "malformed-payload"})
            elif subprocess.run(command, check=False).returncode:
                queue.call("POST", f"{path}/failed")
            else:
                queue.call("POST", f"{path}/completed")
        except Refused as refused:
            sys.stderr.write(f"The run is no longer this worker's: {refused}\n")

    def _claims(self) -> Iterator[dict[str, Any]]:
        if self._urls is None:
            answer = self.queue.call("GET", f"/poll-task-url/{self.provisioner_id}/{self.worker_type}")
            self._urls = answer["queues"]
        for urls in self._urls:  # the highest priority first
            for message in _poll(urls):
                claim = self._claim(message)
                if claim is not None:
                    yield claim

    def _claim(self, message: Message) -> dict[str, Any] | None:
        body = {"workerGroup": self.worker_group, "workerId": self.worker_id}
        if self.protocol == "draft":
            body |= {
                "messageId": message.message_id,
                "receipt": message.receipt,
                "signature": message.signature,
            }
        claim = None
        try:
            claim = self.queue.call("POST", f"/task/{message.task_id}/runs/{message.run_id}/claim", body)
        except Unavailable:
            return None  # keep the message: it becomes visible again in some minutes
        except Refused as refused:  # claimed, canceled or resolved: no worker needs this message
            sys.stderr.write(f"{refused}\n")
        if claim is None or self.protocol == "deployed":
            message.delete()
        return claim


def _poll(urls: Mapping[str, str]) -> Iterator[Message]:
    """Yields at most one message, which other workers do not see for some minutes. Raises UrlsExpired."""
    answer = requests.get(f"{urls['signedPollUrl']}&numofmessages=1", timeout=60)
    if answer.status_code == 403:
        raise UrlsExpired
    answer.raise_for_status()
    for element in ElementTree.fromstring(answer.content):
        message = {field.tag: field.text or "" for field in element}
        work = json.loads(base64.b64decode(message["MessageText"]))
        yield Message(
            message["MessageId"],
            message["PopReceipt"],
            urls["signedDeleteUrl"],
            work["taskId"],
            work["runId"],
            work["signature"],
        )


def main() -> None:
    credentials = {
        "clientId": os.environ["TASKCLUSTER_CLIENT_ID"],
        "accessToken": os.environ["TASKCLUSTER_ACCESS_TOKEN"],
    }
    worker = Worker(Queue(os.environ["TASKCLUSTER_ROOT_URL"] + "/v1", credentials), *sys.argv[1:])
    while True:
        if worker.run_next() is None:
            time.sleep(POLL_INTERVAL)


if __name__ == "__main__":
    main()
