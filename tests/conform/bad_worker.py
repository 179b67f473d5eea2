"""The sample worker with one fault, which breaks one rule: ``bad_worker.py RULE POOL GROUP ID PROTOCOL``.

``generic-worker`` in place of a rule makes it one that reclaims as generic-worker does.

The queue and the credentials are in the environment, as ``legacy-queue conform`` sets it.
"""

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from legacy_queue.worker import (
    Credentials,
    Protocol,
    Refused,
    SampleWorker,
    WorkerSettings,
    finding,
    held_claim,
    http_client,
    polled_queue,
    queue_client,
    task_run,
)
from legacy_queue.worker.http_client import Unavailable
from legacy_queue.worker.worker_settings import WorkerClock

Polling: Any = finding.AzurePolling
Client: Any = queue_client.QueueClient
Message: Any = polled_queue.PolledMessage
Queue: Any = polled_queue.PolledQueue
Held: Any = held_claim.HeldClaim
TaskRun: Any = task_run.TaskRun
Http: Any = http_client.Http
Running: Any = task_run

FAULTS: dict[str, Callable[[], object]] = {}
settings: dict[str, Any] = {}


def fault(plant: Callable[[], object]) -> Callable[[], object]:
    """Declare the function as the one that plants the fault of its name."""
    FAULTS[plant.__name__.replace("_", "-")] = plant
    return plant


def around(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replace a method by a function that gets the original first."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **options: replacement(original, *args, **options))


def hang() -> None:
    time.sleep(3600)


class Clock(WorkerClock):
    """Waits as long for each repetition."""

    def wait(self, event: threading.Event, duration: timedelta) -> bool:
        is_repetition = duration in [http_client.FIRST_DELAY * 2**attempt for attempt in range(5)]
        return super().wait(event, timedelta(seconds=2) if is_repetition else duration)


@fault
def poll_in_order() -> None:
    def poll_task_urls(original: Any, self: Any) -> Any:
        (first, second, third, *others), expires = original(self)
        return [first, third, second, *others], expires

    around(Client, "poll_task_urls", poll_task_urls)


@fault
def poll_from_the_start() -> None:
    def claim(original: Any, self: Any) -> Any:
        found = original(self)
        self._queues = self._queues[-6:]
        return found

    around(Polling, "claim", claim)


@fault
def poll_after_a_pause() -> None:
    settings["poll_interval"] = timedelta(0)


@fault
def poll_for_at_most_32() -> None:
    numbers = iter([33])
    Queue.poll_url = property(lambda self: f"{self.signed_poll_url}&numofmessages={next(numbers, 1)}")


@fault
def renew_urls_in_time() -> None:
    finding.REFRESH_MARGIN = -timedelta(hours=1)


@fault
def renew_urls_after_a_403() -> None:
    def poll(original: Any, *args: Any) -> Any:
        try:
            return original(*args)
        except Refused as refused:
            raise Unavailable(str(refused)) from None

    around(Client, "poll", poll)


@fault
def claim_every_message() -> None:
    Queue.poll_url = property(lambda self: f"{self.signed_poll_url}&numofmessages=2")


@fault
def claim_with_the_message() -> None:
    def claim_proof(original: Any, self: Any) -> Any:
        return {name: value for name, value in original(self).items() if name != "receipt"}

    around(Message, "claim_proof", claim_proof)


@fault
def claim_by_name() -> None:
    settings["worker_id"] = "of-another"


@fault
def leave_a_refused_task() -> None:
    def claim_task(original: Any, self: Any, task_id: str, run_id: int, body: Any) -> Any:
        try:
            return original(self, task_id, run_id, body)
        except Refused:
            self._call("reclaimTask", f"/task/{task_id}/runs/{run_id}/reclaim")
            raise

    around(Client, "claim_task", claim_task)


@fault
def go_on_after_a_malformed_message() -> None:
    def claim(original: Any, self: Any, azure_queue: Any, message: Any) -> Any:
        claimed = original(self, azure_queue, message)
        return claimed if message.work() else hang()

    around(Polling, "_claim", claim)


@fault
def keep_the_message() -> None:
    def claim(original: Any, self: Any, azure_queue: Any, message: Any) -> Any:
        claimed = original(self, azure_queue, message)
        try:
            self._client.delete(azure_queue, message)
        except Refused:
            return claimed
        return claimed

    around(Polling, "_claim", claim)


@fault
def delete_after_the_claim() -> None:
    Client.delete = lambda *_: None


@fault
def delete_only_after_the_claim() -> None:
    def claim(original: Any, self: Any, azure_queue: Any, message: Any) -> Any:
        self._client.delete(azure_queue, message)
        self._client.delete = lambda *_: None
        claimed = original(self, azure_queue, message)
        del self._client.delete
        return claimed

    around(Polling, "_claim", claim)


@fault
def keep_the_message_after_a_5xx() -> None:
    def claim(original: Any, self: Any, azure_queue: Any, message: Any) -> Any:
        clock = self._context.clock

        def wait(waits: Any, *args: Any) -> Any:
            clock.wait = waits
            self._client.delete(azure_queue, message)
            return waits(*args)

        around(clock, "wait", wait)
        return original(self, azure_queue, message)

    around(Polling, "_claim", claim)


@fault
def encode_the_receipt() -> None:
    def delete_url(self: Any, message: Any) -> str:
        url = self.signed_delete_url.replace("{{messageId}}", message.message_id)
        return str(url.replace("{{popReceipt}}", message.pop_receipt))

    Queue.delete_url = delete_url


@fault
def delete_by_message_id() -> None:
    def delete(original: Any, self: Any, azure_queue: Any, message: Any) -> None:
        url = azure_queue.signed_delete_url.replace("{{popReceipt}}", quote(message.pop_receipt, safe=""))
        try:
            self._http.send("delete", url, "DELETE")
        except Refused:
            original(self, azure_queue, message)

    around(Client, "delete", delete)


@fault
def go_on_after_a_failed_delete() -> None:
    def delete(original: Any, *args: Any) -> None:
        try:
            original(*args)
        except Refused:
            Client.poll_task_urls = Client.poll = lambda *_: hang()

    around(Client, "delete", delete)


@fault
def look_at_the_dequeue_count() -> None:
    def claim(original: Any, self: Any, azure_queue: Any, message: Any) -> Any:
        return original(self, azure_queue, message) if message.work() else None

    around(Polling, "_claim", claim)


@fault
def run_every_claim() -> None:
    around(Client, "_call", lambda original, *args, **more: original(*args, **_for_two(more)))


def _for_two(options: dict[str, Any]) -> dict[str, Any]:
    body = options.get("json")
    return {**options, "json": {**body, "tasks": 2}} if body and "tasks" in body else options


@fault
def wait_for_the_answer() -> None:
    def send(original: Any, self: Any, operation: str, *args: Any, **options: Any) -> Any:
        hasty = {"timeout": (5.0, 0.7), "headers": {}} if operation == "claimWork" else {}
        return original(self, operation, *args, **{**options, **hasty})

    around(Http, "send", send)


@fault
def pause_after_an_empty_answer() -> None:
    settings["poll_interval"] = timedelta(0)


@fault
def reclaim_in_time() -> None:
    Held.keep = lambda _: None


@fault
def reclaim_again() -> None:
    def reclaim_task(original: Any, self: Any, claim: Any) -> Any:
        claimed = original(self, claim)
        Client.reclaim_task = lambda *_: hang()
        return claimed

    around(Client, "reclaim_task", reclaim_task)


@fault
def keep_several_claims() -> None:
    held: list[Any] = []

    def keep(original: Any, self: Any) -> None:
        if self.claim.run_id or not any(other.is_active for other in held):
            original(self)
        held.append(self)
        self.is_active = True

    def release(original: Any, self: Any) -> Any:
        self.is_active = False
        return original(self)

    around(Held, "release", release)

    around(Held, "keep", keep)


@fault
def use_the_newest_credentials() -> None:
    def reclaim_task(original: Any, self: Any, claim: Any) -> Any:
        return dataclasses.replace(original(self, claim), credentials=claim.credentials)

    around(Client, "reclaim_task", reclaim_task)


@fault
def stop_on_a_409() -> None:
    """The script runs on, and is reported."""
    around(TaskRun, "kill", lambda _original, _self: None)
    Held.release = lambda _: True


@fault
def go_on_after_a_lost_claim() -> None:
    def reclaim_task(original: Any, self: Any, claim: Any) -> Any:
        try:
            return original(self, claim)
        except Refused:
            Client.poll_task_urls = Client.poll = Client.claim_work = lambda *_: hang()
            raise

    around(Client, "reclaim_task", reclaim_task)


@fault
def live_with_another_clock() -> None:
    def run(original: Any, self: Any) -> None:
        if self._claimed.taken_until - WorkerClock().now() < timedelta(minutes=5):
            original(self)

    around(TaskRun, "run", run)


@fault
def repeat_after_a_5xx() -> None:
    http_client.RETRIES = 0


@fault
def repeat_after_growing_pauses() -> None:
    settings["clock"] = Clock()


@fault
def do_not_repeat_after_a_4xx() -> None:
    def report(original: Any, *args: Any) -> None:
        try:
            original(*args)
        except Refused:
            original(*args)

    around(Client, "report", report)


@fault
def repeat_a_lost_claim() -> None:
    http_client.RETRIES = 0


@fault
def repeat_a_lost_reclaim() -> None:
    def reclaim_task(original: Any, self: Any, claim: Any) -> Any:
        try:
            return original(self, claim)
        except Unavailable:
            hang()

    around(Client, "reclaim_task", reclaim_task)


@fault
def repeat_a_lost_report() -> None:
    http_client.RETRIES = 0


@fault
def repeat_a_lost_artifact() -> None:
    http_client.RETRIES = 0


@fault
def report_the_result() -> None:
    task_run.FAILED = task_run.COMPLETED


@fault
def report_a_malformed_payload() -> None:
    task_run.MALFORMED_PAYLOAD = task_run.INTERNAL_ERROR


@fault
def report_a_shutdown() -> None:
    settings["ends_at_once"] = True


@fault
def report_once() -> None:
    def report(original: Any, *args: Any) -> None:
        original(*args)
        original(*args)

    around(Client, "report", report)


@fault
def upload_before_the_report() -> None:
    def report(original: Any, self: Any, claim: Any, *args: Any) -> None:
        original(self, claim, *args)
        path = f"{claim.path}/artifacts/public%2Flate.txt"
        body = {"storageType": "s3", "expires": claim.expires, "contentType": "text/plain"}
        self._call("createArtifact", path, claim.credentials, json=body)

    around(Client, "report", report)


def generic_worker() -> None:
    """No fault: it reclaims three minutes before takenUntil, unless that is less than half a minute away.

    A claim below 3m30s makes version 8 panic.
    """
    minutes = timedelta(minutes=3)
    half = timedelta(seconds=30)
    held_claim.reclaim_delay = lambda left: left - minutes if left - minutes >= half else timedelta(days=1)

    def keep(original: Any, self: Any) -> None:
        if self.claim.taken_until - WorkerClock().now() < minutes + half - timedelta(seconds=5):
            os._exit(2)
        original(self)

    around(Held, "keep", keep)
    around(
        Running.Payload,
        "from_wire",
        lambda original, wire: (
            original({**wire, "command": (wire["command"] or [1])[0]})
            if isinstance(wire["command"], list)
            else original(wire)
        ),
    )


def main() -> None:
    rule, pool, group, worker_id, protocol = sys.argv[1:]
    {**FAULTS, "generic-worker": generic_worker}[rule]()
    clock = settings.pop("clock", None)
    ends_at_once = settings.pop("ends_at_once", False)
    credentials = Credentials(os.environ["TASKCLUSTER_CLIENT_ID"], os.environ["TASKCLUSTER_ACCESS_TOKEN"])
    provisioner_id, worker_type = pool.split("/")
    of_today = os.environ["TASKCLUSTER_ROOT_URL"] + "/api/queue/v1"
    named = {"worker_group": group, "worker_id": worker_id, "capacity": 2}
    worker = SampleWorker(
        WorkerSettings(
            base_url=of_today if protocol == "today" else os.environ["LEGACY_QUEUE_BASE_URL"],
            credentials=credentials,
            provisioner_id=provisioner_id,
            worker_type=worker_type,
            protocol=Protocol("claimwork" if protocol == "today" else protocol),
            **{**named, **settings},
        ),
        on_step=lambda _step, _fields: None,
        clock=clock,
    )
    if ends_at_once:
        worker.run()
    else:
        from legacy_queue.cli.worker import run_until_signalled

        run_until_signalled(worker)


if __name__ == "__main__":
    main()
