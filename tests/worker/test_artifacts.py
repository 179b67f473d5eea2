"""The artifacts of a run: its log, and the files that its payload declares."""

import threading
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Step

from .conftest import LONG, FakeClock, Prepare, Session
from .fake_queue import FakeQueue, wire

LOG = "public/logs/live.log"


def declare(command: str, **artifacts: str) -> dict[str, Any]:
    """A task with files, by path, as artifacts that are named ``public/<word>``."""
    files = {f"public/{name}": {"type": "file", "path": path} for name, path in artifacts.items()}
    return {"command": command, "artifacts": files}


def result(session: Session) -> str:
    [report] = session.fields(Step.REPORT)
    return str(report["result"])


def test_the_log_is_an_artifact_that_expires_with_its_task(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": "echo one; echo two >&2"})
    work()
    text = "text/plain; charset=utf-8"
    log = fake_queue.artifacts[LOG]
    assert log.created == {"storageType": "s3", "contentType": text, "expires": wire(fake_queue.expires)}
    assert (log.content, log.headers["Content-Type"]) == (b"one\ntwo\n", text)
    assert fake_queue.operations()[-3:] == ["createArtifact", "upload", "reportCompleted"]


def test_a_log_without_a_line_is_an_empty_artifact(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": ["true"]})
    assert result(work()) == "completed"
    assert fake_queue.artifacts[LOG].content == b""


def test_the_log_is_shown_on_standard_output(
    fake_queue: FakeQueue, work: Prepare, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    fake_queue.task({"command": r"printf 'h\303\251llo \377\n'"})
    work()
    assert b"h\303\251llo \377\n" in capfdbinary.readouterr().out


def test_a_task_ends_well_without_a_standard_output(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": "echo one"})
    with redirect_stdout(None):
        session = work()
    assert (result(session), session.failures()) == ("completed", [])


@pytest.mark.parametrize("payload", [{"command": 12}, {"command": ["/no/such/command"]}])
def test_the_log_of_a_malformed_payload_is_uploaded_after_the_report(
    fake_queue: FakeQueue, work: Prepare, payload: Any
) -> None:
    fake_queue.task(payload)
    work()
    assert fake_queue.log.startswith("[worker] malformed payload: payload.command")
    assert fake_queue.operations()[-3:] == ["reportException", "createArtifact", "upload"]


def test_a_declared_file_is_uploaded_before_the_task_is_reported(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    artifacts = {
        "public/data": {"type": "file", "path": "out/x.json"},
        "b/%?#/../c \u00e9.txt": {"type": "file", "path": "./out/x.json"},
    }
    fake_queue.task({"command": "mkdir out; printf '{}' > out/x.json", "artifacts": artifacts})
    assert result(work()) == "completed"
    for name, content_type in zip(artifacts, ["application/octet-stream", "text/plain"], strict=True):
        artifact = fake_queue.artifacts[name]
        assert artifact.created["contentType"] == content_type
        assert (artifact.content, artifact.headers["Content-Length"]) == (b"{}", "2")
    assert fake_queue.operations()[-1] == "reportCompleted"


def test_a_content_type_is_guessed_by_the_names_ending(fake_queue: FakeQueue, work: Prepare) -> None:
    expected = {
        "a.txt": "text/plain",
        "a.log": "text/plain",
        "a.html": "text/html",
        "a.json": "application/json",
        "a.tar.gz": "application/octet-stream",
        "a": "application/octet-stream",
    }
    fake_queue.task(declare("echo x > x", **dict.fromkeys(expected, "x")))
    work()
    for name, content_type in expected.items():
        assert fake_queue.artifacts[f"public/{name}"].created["contentType"] == content_type


def test_a_failed_tasks_artifacts_are_uploaded_too(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task(declare("echo x > x; exit 1", x="x"))
    assert result(work()) == "failed"
    assert fake_queue.artifacts["public/x"].content == b"x\n"


@pytest.mark.parametrize(
    ("make", "path"),
    [
        ("true", "x"),
        ("true", "x" * 300),
        ("true", "\0"),
        ("mkdir x", "x"),
        ("mkfifo x", "x"),
        ("ln -s nowhere x", "x"),
        ("ln -s x x", "x"),
        ("true", "/etc/passwd"),
        ("true", "../../../../etc/passwd"),
        ("ln -s /etc/passwd x", "x"),
        ("ln -s /etc x", "x/passwd"),
        ("ln -s y x", "x"),
        ("mkdir x; rmdir x", "x/../y"),
    ],
)
def test_a_path_that_is_no_file_of_the_working_directory_is_not_uploaded_and_the_task_fails(
    fake_queue: FakeQueue, work: Prepare, make: str, path: str
) -> None:
    fake_queue.task(declare(f"echo y > y; {make}", x=path, y="y"))
    assert result(work()) == "failed"
    assert f"artifact public/x: {path} is not a file in the task's working directory" in fake_queue.log
    assert set(fake_queue.artifacts) == {"public/y", LOG}


def test_a_task_that_moves_its_working_directory_gets_no_other_directory_uploaded(
    fake_queue: FakeQueue, work: Prepare, tmp_path: Path
) -> None:
    command = f'echo y > y; here=$PWD; mv "$here" {tmp_path}/moved; ln -s /etc "$here"; echo "$here"'
    fake_queue.task(declare(command, x="passwd", y="y"))
    assert result(work()) == "failed"
    assert set(fake_queue.artifacts) == {"public/y", LOG}
    Path(fake_queue.log.split()[0]).unlink(missing_ok=True)  # the link


def test_an_upload_that_fails_while_the_worker_stops_is_reported_worker_shutdown(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    fake_queue.task({"command": ["true"]})
    session = prepare()
    fake_queue.script("createArtifact", session.worker.stop)
    fake_queue.script("upload", 503)
    session.start().end()
    assert fake_queue.requests_for("reportException")[0].body == {"reason": "worker-shutdown"}


def test_a_worker_that_stops_uploads_no_further_file(fake_queue: FakeQueue, prepare: Prepare) -> None:
    fake_queue.task(declare("echo x > x", x="x", y="x"))
    session = prepare()
    fake_queue.script("createArtifact", session.worker.stop)
    session.start().end()
    assert [*fake_queue.artifacts] == ["public/x", LOG]
    assert fake_queue.requests_for("reportException")[0].body == {"reason": "worker-shutdown"}


def test_an_upload_is_repeated_from_its_start_on_a_5xx(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task(declare("head -c 300000 /dev/zero > x", x="x"))
    fake_queue.script("upload", 503, 500)
    assert result(work()) == "completed"
    assert fake_queue.artifacts["public/x"].content == bytes(300_000)


@pytest.mark.parametrize(
    ("operation", "answers"),
    [("upload", [403]), ("upload", [500] * 6), ("createArtifact", [409]), ("createArtifact", [503] * 6)],
)
@pytest.mark.parametrize("artifact", ["public/x", LOG])
def test_a_task_whose_artifact_or_log_cannot_be_uploaded_fails(
    fake_queue: FakeQueue, work: Prepare, operation: str, answers: list[int], artifact: str
) -> None:
    fake_queue.task(declare("echo x > x", **({"x": "x"} if artifact == "public/x" else {})))
    fake_queue.script(operation, *answers)
    session = work()
    assert result(session) == "failed"
    [failure] = session.failures()
    assert failure.startswith(f"artifact {artifact}: ")
    assert str(answers[-1]) in failure
    assert artifact == LOG or f"[worker] {failure}" in fake_queue.log
    assert "sig=" not in repr(session.steps)


def test_a_claim_is_reclaimed_while_its_artifacts_are_uploaded(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock
) -> None:
    fake_queue.task(declare("echo x > x", x="x"))
    reclaimed = threading.Event()

    def slow() -> None:
        clock.ahead += timedelta(minutes=18)
        assert reclaimed.wait(LONG)

    fake_queue.script("upload", slow)
    session = prepare(max_tasks=1)
    session.on(Step.RECLAIM, reclaimed.set)
    session.start().end()
    assert result(session) == "completed"
    assert fake_queue.requests_for("reportCompleted")[0].client_id == "task-client/2"


def test_neither_artifact_nor_log_nor_report_is_sent_after_the_claim_is_lost(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock
) -> None:
    fake_queue.task(declare("echo x > x; cp x y", x="x", y="y"))
    fake_queue.script("reclaimTask", 409)
    lost = threading.Event()

    def slow() -> None:
        clock.ahead += timedelta(minutes=18)
        assert lost.wait(LONG)

    fake_queue.script("upload", slow)
    session = prepare(max_tasks=1)
    session.on(Step.CLAIM_LOST, lost.set)
    session.start().end()
    assert fake_queue.operations()[-3:] == ["createArtifact", "upload", "reclaimTask"]
    assert set(fake_queue.artifacts) == {"public/x"}
