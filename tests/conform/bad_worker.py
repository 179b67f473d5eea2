"""The sample worker with one fault, which breaks one rule: ``bad_worker.py RULE POOL GROUP ID PROTOCOL``.

``generic-worker`` in place of a rule makes it one that reclaims as generic-worker does.

The queue and the credentials are in the environment, as ``legacy-queue conform`` sets it.
"""

import dataclasses
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from legacy_queue.cli.worker import run_until_signalled
from legacy_queue.worker import (
    Credentials,
    Protocol,
    Refused,
    SampleWorker,
    WorkerSettings,
    finding,
    held_claim,
    http_client,
    queue_client,
    task_run,
)
from legacy_queue.worker.worker_settings import WorkerClock

Polling: Any = finding.AzurePolling
Client: Any = queue_client.QueueClient
Held: Any = held_claim.HeldClaim
TaskRun: Any = task_run.TaskRun
Http: Any = http_client.Http
Running: Any = task_run

FAULTS: dict[str, Callable[[], object]] = {}


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
def go_on_after_a_failed_delete() -> None:
    def delete(original: Any, *args: Any) -> None:
        try:
            original(*args)
        except Refused:
            Client.poll_task_urls = Client.poll = lambda *_: hang()

    around(Client, "delete", delete)


@fault
def wait_for_the_answer() -> None:
    def send(original: Any, self: Any, operation: str, *args: Any, **options: Any) -> Any:
        hasty = {"timeout": (5.0, 0.7), "headers": {}} if operation == "claimWork" else {}
        return original(self, operation, *args, **{**options, **hasty})

    around(Http, "send", send)


@fault
def reclaim_again() -> None:
    def reclaim_task(original: Any, self: Any, claim: Any) -> Any:
        claimed = original(self, claim)
        Client.reclaim_task = lambda *_: hang()
        return claimed

    around(Client, "reclaim_task", reclaim_task)


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
def repeat_a_lost_report() -> None:
    http_client.RETRIES = 0


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
    credentials = Credentials(os.environ["TASKCLUSTER_CLIENT_ID"], os.environ["TASKCLUSTER_ACCESS_TOKEN"])
    provisioner_id, worker_type = pool.split("/")
    worker = SampleWorker(
        WorkerSettings(
            base_url=os.environ["LEGACY_QUEUE_BASE_URL"],
            credentials=credentials,
            provisioner_id=provisioner_id,
            worker_type=worker_type,
            protocol=Protocol(protocol),
            worker_group=group,
            worker_id=worker_id,
            capacity=2,
        ),
        on_step=lambda _step, _fields: None,
    )
    run_until_signalled(worker)


if __name__ == "__main__":
    main()
