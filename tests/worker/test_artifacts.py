"""The artifacts of a run: its log, and the files that its payload declares."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.times import format_time
from legacy_queue.worker import Step
from tests.system.processes import LONG

from .conftest import FakeClock, Prepare
from .scripted_queue import LOG, ScriptedQueue


def declare(command: str, **artifacts: str) -> dict[str, Any]:
    """A task with files, by path, as artifacts that are named ``public/<word>``."""
    files = {f"public/{name}": {"type": "file", "path": path} for name, path in artifacts.items()}
    return {"command": command, "artifacts": files}


def test_the_log_is_an_artifact_that_expires_with_its_task_and_is_shown(
    queue: ScriptedQueue, work: Prepare, clock: FakeClock, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    expires = format_time(clock.now() + timedelta(days=365))
    task_id = queue.task({"command": r"printf 'h\303\251llo \377\n'; echo two >&2"}, expires=expires)
    work()
    text = "text/plain; charset=utf-8"
    log = queue.artifact(task_id, LOG)
    [created] = queue.requests_for("createArtifact")
    assert created.body == {"storageType": "s3", "contentType": text, "expires": expires}
    assert (log.content, log.headers["Content-Type"]) == (b"h\303\251llo \377\ntwo\n", text)
    assert log.content in capfdbinary.readouterr().out
    assert queue.operations()[-3:] == ["createArtifact", "upload", "reportCompleted"]


def test_the_log_of_a_malformed_payload_is_uploaded_after_the_report(
    queue: ScriptedQueue, work: Prepare
) -> None:
    task_id = queue.task({"command": 12})
    work()
    assert queue.log(task_id).startswith("[worker] malformed payload: payload.command")
    assert queue.operations()[-3:] == ["reportException", "createArtifact", "upload"]


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("public/a.txt", "text/plain"),
        ("public/a.log", "text/plain"),
        ("public/a.json", "application/json"),
        ("public/a.tar.gz", "application/octet-stream"),
        ("public/b/%?#/../c", "application/octet-stream"),
    ],
)
def test_a_declared_file_is_uploaded_before_the_report_with_the_type_of_its_name(
    queue: ScriptedQueue, work: Prepare, name: str, content_type: str
) -> None:
    artifacts = {name: {"type": "file", "path": "./out/x"}}
    task_id = queue.task({"command": "mkdir out; head -c 300000 /dev/zero > out/x", "artifacts": artifacts})
    queue.script("upload", 503, 500)  # and is sent from its start again
    work()
    artifact = queue.artifact(task_id, name)
    assert artifact.headers["Content-Type"] == content_type
    assert artifact.content == bytes(300_000)
    assert queue.operations()[-1] == "reportCompleted"


@pytest.mark.parametrize(
    ("make", "path"),
    [
        ("true", "x"),
        ("true", "x" * 300),
        ("true", "\0"),
        ("mkdir x", "x"),
        ("mkfifo x", "x"),
        ("ln -s x x", "x"),
        ("true", "/etc/passwd"),
        ("true", "../../../../etc/passwd"),
        ("ln -s /etc x", "x/passwd"),
        ("ln -s y x", "x"),
    ],
)
def test_a_path_that_is_no_file_of_the_working_directory_is_not_uploaded_and_the_task_fails(
    queue: ScriptedQueue, work: Prepare, make: str, path: str
) -> None:
    task_id = queue.task(declare(f"echo y > y; {make}", x=path, y="y"))
    work()
    assert queue.reports() == [("reportFailed", None)]
    assert f"artifact public/x: {path} is not a file in the task's working directory" in queue.log(task_id)
    assert queue.artifacts(task_id) == {"public/y", LOG}


@pytest.mark.parametrize(("operation", "answers"), [("upload", [403]), ("createArtifact", [503] * 6)])
@pytest.mark.parametrize("artifacts", [{"x": "x"}, {}])
def test_a_task_whose_artifact_or_log_cannot_be_uploaded_fails(
    queue: ScriptedQueue, work: Prepare, operation: str, answers: list[int], artifacts: dict[str, str]
) -> None:
    task_id = queue.task(declare("echo x > x", **artifacts))
    queue.script(operation, *answers)
    [failure] = work().failures()
    assert queue.reports() == [("reportFailed", None)]
    assert failure.startswith(f"artifact {'public/x' if artifacts else LOG}: ")
    assert not artifacts or f"[worker] {failure}" in queue.log(task_id)


def test_a_worker_that_stops_uploads_no_further_file_and_reports_worker_shutdown(
    queue: ScriptedQueue, prepare: Prepare
) -> None:
    task_id = queue.task(declare("echo x > x", x="x", y="x"))
    session = prepare()
    queue.script("createArtifact", session.worker.stop)
    session.run()
    assert queue.artifacts(task_id) == {"public/x", LOG}
    assert queue.reports() == [("reportException", "worker-shutdown")]


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_upload_goes_on_while_its_claim_is_reclaimed_and_nothing_follows_once_that_is_lost(
    queue: ScriptedQueue, prepare: Prepare, clock: FakeClock, is_lost: bool
) -> None:
    task_id = queue.task(declare("echo x > x; cp x y", x="x", y="y"))
    reclaimed = threading.Event()

    def slow() -> None:
        clock.advance(minutes=18)
        assert reclaimed.wait(LONG)

    queue.script("upload", slow)
    queue.script("reclaimTask", 409 if is_lost else 200)
    session = prepare()
    session.on(Step.CLAIM_LOST if is_lost else Step.RECLAIM, reclaimed.set)
    session.run()
    assert queue.reports() == ([] if is_lost else [("reportCompleted", None)])
    assert queue.artifacts(task_id) == ({"public/x"} if is_lost else {"public/x", "public/y", LOG})
