"""Workers of the three protocols as threads, which carry out the payloads of their tasks."""

import base64
import json
import time
import xml.etree.ElementTree as ET
from urllib.parse import quote

import requests

from .checks import seconds
from .clients import PROVISIONER, WORKER_TYPE, Answer, Caller, LoadContext
from .record import Claim, Json

GROUP = "chaos"
PROTOCOLS = ("draft", "deployed", "claimWork")

_POLL_TIMEOUT = 10.0  # seconds
_CLAIM_TRIES = 5
_IDLE = 1.0  # seconds between two polls that find nothing


class ChaosWorker(Caller):
    """A worker of one protocol."""

    def __init__(self, context: LoadContext, seed: str, protocol: str, worker_id: str) -> None:
        super().__init__(context, seed)
        self._protocol, self._worker_id = protocol, worker_id
        self._urls: list[Json] = []

    def run(self) -> None:
        while not self.context.is_over.is_set():
            claims = self._claim_work() if self._protocol == "claimWork" else self._poll()
            for claim in claims:
                self._hold(claim)
            for claim in claims:
                self._work(claim)
            if not claims and self._protocol != "claimWork":
                self.context.is_over.wait(_IDLE)

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
            self.context.record.answers["poll", answer.status_code] += 1
            return list(ET.fromstring(answer.content)) if answer.status_code == 200 else []
        except requests.RequestException:
            self.context.record.answers["poll", 0] += 1
            self.context.is_over.wait(_IDLE)
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
            self.context.record.answers["delete", answer.status_code] += 1
        except requests.RequestException:
            self.context.record.answers["delete", 0] += 1

    def _hold(self, claim: Json) -> None:
        task_id, run_id = claim["status"]["taskId"], claim["runId"]
        until = seconds(claim["takenUntil"])
        self.context.record.claims.append(Claim(task_id, run_id, self._worker_id, time.time(), until))

    def _work(self, claim: Json) -> None:
        plan, run_id = claim["task"]["payload"]["plan"], claim["runId"]
        step = plan[-1] if self.context.record.is_ending else plan[min(run_id, len(plan) - 1)]
        if step == "drop":
            return
        if step == "long":
            for _ in range(4):
                self.context.is_over.wait(self.context.claim_timeout / 3)
                if not self._reclaim(claim):
                    return
            step = "completed"
        self.context.is_over.wait(self.chance.uniform(0.0, 0.6))
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
