"""The sample worker with real commands and a real queue. tests/conform judges it by the rules."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread, current_thread
from typing import Any
from urllib.parse import quote

import pytest
import requests

from legacy_queue.credentials import Credentials
from legacy_queue.domain.events import EVER
from legacy_queue.domain.times import format_time
from legacy_queue.testing import LegacyQueue
from legacy_queue.worker import SampleWorker, WorkerSettings
from legacy_queue.worker.queue_client import Claim, QueueClient, Refused
from legacy_queue.worker.task_run import LOG, TaskRun, reclaim_in
from tests.system.processes import LONG, has_ended, leaks, wait_until

pytestmark = pytest.mark.processes

LONG_COMMAND = f"sleep {2 * LONG}"
MALFORMED: list[Any] = [
    {},
    {"command": []},
    {"command": ["echo", 1]},
    {"command": ["no-such-program"]},
    {"command": ["echo", "a" * 200_000]},
    {"command": "true", "env": None},
    {"command": "true", "env": {"TOKEN": "s3cret", "A": 1}},
    {"command": "true", "env": {"A=": "s3cret"}},
    {"command": "true", "maxRunTime": None},
    {"command": "true", "artifacts": []},
    {"command": "true", "maxRunTime": "nan"},
    {"command": "true", "artifacts": {"public/x": {"type": "file", "path": 5}}},
    {"command": "true", "artifacts": {"public/x": {"type": "directory", "path": "x"}}},
    {"command": "true", "artifacts": {LOG: {"type": "file", "path": "x"}}},
]

Steps = list[tuple[str, dict[str, Any]]]


def work(
    queue: LegacyQueue,
    at_run: Callable[[SampleWorker], object] = id,
    at_poll: Callable[[SampleWorker], object] = id,
    max_tasks: int = 1,
    **settings: Any,
) -> Steps:
    """Run a worker until it ends. Returns its steps.

    It calls ``at_run`` when it runs a task, and ``at_poll`` when it polls.
    """
    steps: Steps = []

    def on_step(step: str, **fields: Any) -> None:
        steps.append((step, fields))
        if step == "run":
            at_run(worker)
        if step == "poll":
            at_poll(worker)

    own = WorkerSettings(
        base_url=queue.base_url,
        credentials=Credentials.from_wire(queue.credentials),
        pool="test-provisioner/test-worker-type",
        worker_group="group",
        worker_id="id",
        max_tasks=max_tasks,
        **settings,
    )
    worker = SampleWorker(own, on_step)
    worker.run()
    return steps


def artifact(queue: LegacyQueue, task_id: str, name: str = LOG) -> requests.Response:
    return requests.get(f"{queue.base_url}/task/{task_id}/artifacts/{name}", timeout=LONG)


def results(queue: LegacyQueue, task_id: str) -> list[str]:
    return [run["reasonResolved"] for run in queue.status(task_id)["runs"]]


def written(file: Path) -> list[int]:
    """Wait until a command has written a whole line to the file. Returns the line's numbers."""
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return [int(word) for word in file.read_text().split()]


def test_a_command_gets_its_env_its_task_id_and_run_id_but_no_secret_of_the_worker(
    legacy_queue: LegacyQueue, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("TASKCLUSTER_ACCESS_TOKEN", "the-workers-own-token")
    task_id = legacy_queue.create_task(payload={"command": ["env"], "env": {"GREETING": "h\u00e9llo"}})
    work(legacy_queue)
    log = artifact(legacy_queue, task_id)
    assert log.headers["Content-Type"] == "text/plain; charset=utf-8"
    lines = log.content.decode().splitlines()
    assert {"GREETING=h\u00e9llo", f"TASK_ID={task_id}", "RUN_ID=0"} <= set(lines)
    assert "TASKCLUSTER" not in log.text
    assert log.content in capfdbinary.readouterr().out


def test_a_payload_that_cannot_be_run_is_malformed_and_the_log_does_not_show_its_env(
    legacy_queue: LegacyQueue,
) -> None:
    tasks = [legacy_queue.create_task(payload=payload) for payload in MALFORMED]
    work(legacy_queue, max_tasks=len(tasks), capacity=4)
    assert [results(legacy_queue, task_id) for task_id in tasks] == [["malformed-payload"]] * len(tasks)
    logs = [artifact(legacy_queue, task_id).text for task_id in tasks]
    assert [log for log in logs if "[worker] malformed payload: " not in log or "s3cret" in log] == []


@pytest.mark.parametrize(("then", "result"), [("true", "completed"), (LONG_COMMAND, "failed")])
def test_the_child_processes_of_a_command_are_killed_when_it_ends_or_runs_for_too_long(
    legacy_queue: LegacyQueue, tmp_path: Path, then: str, result: str
) -> None:
    pids = tmp_path / "pids"
    command = f"({LONG_COMMAND}) & echo $! $$ > {pids}; {then}"
    task_id = legacy_queue.create_task(payload={"command": command, "maxRunTime": 2})
    work(legacy_queue)
    assert results(legacy_queue, task_id) == [result]
    wait_until(lambda: all(map(has_ended, written(pids))))


@pytest.mark.parametrize(("left", "before"), [(1200, 180), (540, 180), (180, 60), (6, 2)])
def test_a_claim_is_reclaimed_three_minutes_before_taken_until_or_if_it_is_short_after_two_thirds(
    left: int, before: int
) -> None:
    taken_until = datetime.now(UTC) + timedelta(seconds=left)
    margin = timedelta(seconds=left) - reclaim_in({"takenUntil": format_time(taken_until)})
    assert timedelta(seconds=before - 1) < margin < timedelta(seconds=before + 1)


class SlowUpload(QueueClient):
    """A client whose upload lasts until the claim was reclaimed, or the reclaim was refused."""

    def __init__(self, *, is_refused: bool) -> None:
        self.reported: list[str] = []
        self.reclaimed = Event()
        self._is_refused = is_refused
        self._reclaiming = SimpleQueue[Thread]()

    def reclaim_task(self, claim: Claim) -> Claim:
        self._reclaiming.put(current_thread())
        if self._is_refused:
            raise Refused("409")
        return {**claim, "takenUntil": format_time(EVER), "credentials": "of the reclaim"}

    def create_artifact(self, *_: object) -> None:
        thread = self._reclaiming.get()
        wait_until(lambda: self.reclaimed.is_set() or not thread.is_alive())
        self._reclaiming.put(thread)

    def report(self, claim: Claim, result: str, _: object) -> None:
        self.reported.append(f"{result} with the credentials {claim['credentials']}")


@pytest.mark.parametrize(
    ("is_refused", "reported"), [(False, ["completed with the credentials of the reclaim"]), (True, [])]
)
def test_a_claim_is_reclaimed_during_an_upload_and_nothing_is_reported_if_it_is_lost(
    is_refused: bool, reported: list[str]
) -> None:
    client = SlowUpload(is_refused=is_refused)
    task = {"payload": {"command": "true"}}
    claim = {"status": {"taskId": "a"}, "runId": 0, "task": task, "credentials": "of the claim"}

    def notify(step: str, **_: object) -> None:
        if step == "reclaim":
            client.reclaimed.set()

    taken_until = datetime.now(UTC) + timedelta(seconds=1.4)  # the worker reclaims it after a second
    TaskRun(client, {**claim, "takenUntil": format_time(taken_until)}, notify, Event(), Lock()).run()
    assert client.reported == reported


def test_a_stopping_worker_kills_its_task_reports_it_and_does_not_claim_the_retry(
    legacy_queue: LegacyQueue, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    task_id = legacy_queue.create_task(
        payload={"command": f"trap '' TERM; echo $$ > {pid}; {LONG_COMMAND}"}, retries=5
    )

    def stop(worker: SampleWorker) -> None:
        written(pid)
        asks = "legacy_queue_waiting_requests 1"
        wait_until(lambda: asks in requests.get(f"{legacy_queue.root_url}/metrics", timeout=LONG).text)
        worker.stop()

    work(legacy_queue, stop, protocol="claimwork", capacity=2, max_tasks=2)
    first, retry = legacy_queue.status(task_id)["runs"]
    assert first["reasonResolved"] == "worker-shutdown"
    assert retry["state"] == "pending"
    assert has_ended(*written(pid))


def test_a_declared_file_becomes_an_artifact_whose_content_type_follows_from_its_name(
    legacy_queue: LegacyQueue,
) -> None:
    types = {
        "public/a.txt": "text/plain",
        "public/a.json": "application/json",
        "public/a.tar.gz": "application/octet-stream",
        "public/b/%?#/../c": "application/octet-stream",
    }
    files = {name: {"type": "file", "path": "./out/x"} for name in types}
    task_id = legacy_queue.create_task(
        payload={"command": "mkdir out; head -c 300000 /dev/zero > out/x", "artifacts": files}
    )
    legacy_queue.fault("upload", status=503, times=1)
    work(legacy_queue)
    assert results(legacy_queue, task_id) == ["completed"]
    for name, content_type in types.items():
        found = artifact(legacy_queue, task_id, quote(name, safe=""))
        assert (found.headers["Content-Type"], found.content) == (content_type, bytes(300_000))


def test_a_deployed_worker_keeps_the_message_if_its_claim_gets_no_answer(legacy_queue: LegacyQueue) -> None:
    """conform cannot show this, because its worker repeats the claim until it gets an answer."""
    legacy_queue.create_task(payload={"command": "true"})
    legacy_queue.fault("claimTask", status=503, times=1)
    work(legacy_queue, at_poll=SampleWorker.stop, protocol="deployed")
    assert len(legacy_queue.messages()) == 1


def test_if_a_declared_file_is_missing_the_task_fails_and_the_other_files_are_uploaded(
    legacy_queue: LegacyQueue,
) -> None:
    missing = ["x", "x" * 300, "\0", ".", "/etc/hostname", "pipe"]
    paths = {**{f"public/{number}": path for number, path in enumerate(missing)}, "public/y": "y"}
    files = {name: {"type": "file", "path": path} for name, path in paths.items()}
    task_id = legacy_queue.create_task(payload={"command": "echo y > y; mkfifo pipe", "artifacts": files})
    work(legacy_queue)
    assert results(legacy_queue, task_id) == ["failed"]
    log = artifact(legacy_queue, task_id).text
    for number, path in enumerate(missing):
        assert (
            f"[worker] artifact public/{number}: {path} is not a readable file in the task's directory" in log
        )
    assert artifact(legacy_queue, task_id, "public/y").text == "y\n"


def test_a_task_whose_log_cannot_be_uploaded_fails(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task(payload={"command": "true"})
    legacy_queue.fault("upload", status=403, times=1)
    work(legacy_queue)
    assert results(legacy_queue, task_id) == ["failed"]


def test_a_failure_step_has_the_queues_error_message_and_no_step_has_a_secret(
    legacy_queue: LegacyQueue,
) -> None:
    for command in ("true", "exit 1", "true"):
        legacy_queue.create_task(payload={"command": command, "env": {"KEY": "s3cret"}})
    legacy_queue.fault("claimTask", status=409, message="Not for you.", times=1)
    for endpoint, status in (("azure.receive", 403), ("azure.delete", 400), ("upload", 403)):
        legacy_queue.fault(endpoint, status=status, times=1)
    steps = work(legacy_queue, protocol="deployed", max_tasks=2)
    failures = [fields["detail"] for name, fields in steps if name == "failure"]
    assert len(failures) >= 5
    assert any("/claim: 409 Not for you." in detail for detail in failures)
    assert leaks(repr(steps), {"s3cret", legacy_queue.credentials["accessToken"]}) == []
