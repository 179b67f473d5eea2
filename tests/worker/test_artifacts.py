"""The artifacts of a run: its log, and the files that its payload declares."""

from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.times import format_time

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
