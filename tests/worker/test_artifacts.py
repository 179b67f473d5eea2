"""The artifacts of a run: its log, and the files that its payload declares."""

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from legacy_queue.worker import Step
from legacy_queue.worker.artifact_uploader import MAX_SIZE, content_type
from legacy_queue.worker.http_client import Content

from .conftest import LONG, FakeClock, Prepare, Session
from .fake_queue import FakeQueue, wire

LIVE, BACKING = "public/logs/live.log", "public/logs/live_backing.log"
TEXT = "text/plain; charset=utf-8"


def declare(command: str, **artifacts: Any) -> dict[str, Any]:
    """A task with artifacts that are named ``public/<word>``."""
    return {
        "command": command,
        "artifacts": {f"public/{name}": artifact for name, artifact in artifacts.items()},
    }


def file(path: str, **more: str) -> dict[str, str]:
    return {"type": "file", "path": path, **more}


def folder(path: str) -> dict[str, str]:
    return {"type": "directory", "path": path}


def result(session: Session) -> str:
    [report] = session.fields(Step.REPORT)
    return str(report["result"])


def test_the_log_is_an_artifact_and_live_log_leads_to_it(fake_queue: FakeQueue, work: Prepare) -> None:
    task_id = fake_queue.task({"command": "echo one; echo two >&2"})
    work()
    backing, live = fake_queue.artifacts[BACKING], fake_queue.artifacts[LIVE]
    expires = wire(fake_queue.expires)
    assert backing.created == [{"storageType": "s3", "contentType": TEXT, "expires": expires}]
    assert (backing.content, backing.headers["Content-Type"]) == (b"one\ntwo\n", TEXT)
    assert live.created[-1] == {
        "storageType": "reference",
        "contentType": TEXT,
        "expires": expires,
        "url": f"{fake_queue.root_url}/v1/task/{task_id}/runs/0/artifacts/{BACKING}",
    }


def test_a_log_without_a_line_is_an_empty_artifact(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": ["true"]})
    assert result(work()) == "completed"
    assert fake_queue.artifacts[BACKING].content == b""


def test_a_running_tasks_log_can_be_read_where_live_log_leads(
    fake_queue: FakeQueue, prepare: Prepare, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    fake_queue.task({"command": f"echo first; until [ -e {go_on} ]; do sleep 0.02; done; echo second"})
    session = prepare(max_tasks=1).start()
    session.wait_for(Step.RUN)
    [reference] = fake_queue.artifacts[LIVE].created
    with requests.get(reference["url"], stream=True, timeout=LONG) as growing:
        assert growing.headers["Content-Type"] == TEXT
        lines = growing.iter_lines(chunk_size=1)
        assert next(lines) == b"first"
        go_on.touch()
        assert list(lines) == [b"second"]
        session.end()
    assert fake_queue.artifacts[LIVE].kinds == ["reference", "reference"]
    with pytest.raises(requests.ConnectionError):
        requests.get(reference["url"], timeout=LONG)


def test_a_shortened_log_url_is_answered_404(fake_queue: FakeQueue, prepare: Prepare) -> None:
    fake_queue.task({"command": f"sleep {LONG}"})
    session = prepare(max_tasks=1).start()
    session.wait_for(Step.RUN)
    url = fake_queue.artifacts[LIVE].created[0]["url"]
    assert [requests.get(url[:-end], timeout=LONG).status_code for end in (1, 22)] == [404, 404]


def test_without_a_live_log_the_reference_is_made_at_the_end(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": ["true"]})
    work(live_log=False)
    assert fake_queue.operations()[-4:] == ["createArtifact", "upload", "createArtifact", "reportCompleted"]
    assert fake_queue.artifacts[LIVE].kinds == ["reference"]


def test_a_task_completes_although_a_reader_of_its_log_disconnects(
    fake_queue: FakeQueue, prepare: Prepare, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    fake_queue.task({"command": f"echo first; until [ -e {go_on} ]; do sleep 0.02; done; seq 100000"})
    session = prepare(max_tasks=1).start()
    session.wait_for(Step.RUN)
    with requests.get(fake_queue.artifacts[LIVE].created[0]["url"], stream=True, timeout=LONG) as growing:
        next(growing.iter_content(1))
    go_on.touch()
    session.end()
    assert result(session) == "completed"


@pytest.mark.parametrize("payload", [{"command": 12}, {"command": ["/no/such/command"]}])
def test_the_log_of_a_malformed_payload_is_uploaded_after_the_report(
    fake_queue: FakeQueue, work: Prepare, payload: Any
) -> None:
    fake_queue.task(payload)
    work()
    assert (fake_queue.artifacts[BACKING].content or b"").startswith(
        b"[worker] malformed payload: payload.command"
    )
    assert fake_queue.operations()[-4:] == ["reportException", "createArtifact", "upload", "createArtifact"]


def test_a_declared_file_is_uploaded_before_the_task_is_reported(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    fake_queue.task(
        declare("mkdir out; printf '{}' > out/x.json", data=file("out/x.json"), same=file("./out/x.json"))
    )
    assert result(work()) == "completed"
    data = fake_queue.artifacts["public/data"]
    expires = wire(fake_queue.expires)
    assert data.created == [
        {"storageType": "s3", "contentType": "application/octet-stream", "expires": expires}
    ]
    assert (data.content, data.headers["Content-Length"]) == (b"{}", "2")
    assert fake_queue.artifacts["public/same"].content == b"{}"
    assert fake_queue.operations()[-1] == "reportCompleted"


def test_a_failed_tasks_artifacts_are_uploaded_too(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task(declare("echo x > x; exit 1", x=file("x")))
    assert result(work()) == "failed"
    assert fake_queue.artifacts["public/x"].content == b"x\n"


def test_a_list_of_artifacts_is_accepted_with_and_without_names(fake_queue: FakeQueue, work: Prepare) -> None:
    artifacts = [file("a.txt"), file("a.txt", name="public/b/%?#/../c.txt")]
    fake_queue.task({"command": "echo a > a.txt", "artifacts": artifacts})
    assert result(work()) == "completed"
    for name in ("a.txt", "public/b/%?#/../c.txt"):
        assert fake_queue.artifacts[name].content == b"a\n"
        assert fake_queue.artifacts[name].created[0]["contentType"] == "text/plain"


def test_a_directory_artifact_uploads_all_files_below_it(fake_queue: FakeQueue, work: Prepare) -> None:
    make = "mkdir -p d/e/f d/empty; echo 1 > d/1.html; echo 2 > d/e/f/2; echo 3 > 'd/e/3 3'; mkfifo d/fifo"
    links = "ln -s 1.html d/link; ln -s e d/folder; ln -s nowhere d/dangling"
    fake_queue.task(declare(f"{make}; {links}", d=folder("d")))
    assert result(work()) == "completed"
    uploaded = {
        name: artifact.content
        for name, artifact in fake_queue.artifacts.items()
        if name.startswith("public/d")
    }
    assert uploaded == {
        "public/d/1.html": b"1\n",
        "public/d/link": b"1\n",
        "public/d/e/f/2": b"2\n",
        "public/d/e/3 3": b"3\n",
    }


MISSING, INVALID, LARGE = (
    f"{what}-on-worker" for what in ("file-missing", "invalid-resource", "too-large-file")
)


@pytest.mark.parametrize(
    ("make", "declared", "reason", "says"),
    [
        ("true", file("x"), MISSING, "There is no file x"),
        ("true", folder("x"), MISSING, "There is no directory x"),
        ("echo x > x", file("x/y"), MISSING, "There is no file x/y"),
        ("true", file("x" * 300), MISSING, "There is no file x"),
        ("mkdir x", file("x"), INVALID, "x is not a file"),
        ("echo x > x", folder("x"), INVALID, "x is not a directory"),
        ("mkfifo x", file("x"), INVALID, "x is not a file"),
        ("ln -s nowhere x", file("x"), INVALID, "x is not a file"),
        ("ln -s x x", file("x"), INVALID, "x is not a file"),
        ("true", file("/etc/passwd"), INVALID, "leads out"),
        ("true", file("../../../etc/passwd"), INVALID, "leads out"),
        ("true", folder(".."), INVALID, "leads out"),
        ("ln -s /etc/passwd x", file("x"), INVALID, "leads out"),
        ("ln -s /etc x", file("x/passwd"), INVALID, "leads out"),
        ("ln -s /etc x", folder("x"), INVALID, "leads out"),
        (f"truncate -s {MAX_SIZE + 1} x", file("x"), LARGE, f"x has {MAX_SIZE + 1} bytes"),
    ],
)
def test_a_path_that_cannot_be_uploaded_becomes_an_error_artifact_and_the_task_fails(
    fake_queue: FakeQueue, work: Prepare, make: str, declared: dict[str, str], reason: str, says: str
) -> None:
    fake_queue.task(declare(make, x=declared, log=file("log")) | {"command": f"echo y > log; {make}"})
    session = work()
    assert result(session) == "failed"
    [error] = fake_queue.artifacts["public/x"].created
    assert (error["storageType"], error["reason"]) == ("error", reason)
    assert says in error["message"]
    assert says.encode() in (fake_queue.artifacts[BACKING].content or b"")
    assert fake_queue.artifacts["public/log"].content == b"y\n"  # the others are uploaded all the same


def test_a_second_file_with_the_same_artifact_name_is_logged_and_the_task_fails(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    command = "mkdir d; echo in the folder > d/b; echo another > f"
    fake_queue.task({"command": command, "artifacts": {"public/a": folder("d"), "public/a/b": file("f")}})
    session = work()
    assert result(session) == "failed"
    assert fake_queue.artifacts["public/a/b"].content == b"in the folder\n"
    assert b"public/a/b: another declared file" in (fake_queue.artifacts[BACKING].content or b"")


@pytest.mark.parametrize("link", ["ln -s /etc/passwd d/x", "ln -s /etc d/x", "ln -s ../.. d/x"])
def test_a_link_that_leads_out_of_the_working_directory_becomes_an_error_and_is_not_followed(
    fake_queue: FakeQueue, work: Prepare, link: str
) -> None:
    fake_queue.task(declare(f"mkdir d; echo a > d/a; {link}", d=folder("d")))
    assert result(work()) == "failed"
    [error] = fake_queue.artifacts["public/d/x"].created
    assert error["reason"] == INVALID
    assert fake_queue.artifacts["public/d/a"].content == b"a\n"
    assert not [name for name in fake_queue.artifacts if name.startswith("public/d/x/")]


@pytest.mark.parametrize(
    ("lifetime", "days"),
    [(timedelta(days=3), 3), (timedelta(days=400), 365), (None, 365)],
)
def test_an_artifact_expires_when_its_task_says_and_never_after_the_task(
    fake_queue: FakeQueue, work: Prepare, lifetime: timedelta | None, days: int
) -> None:
    start = fake_queue.expires - timedelta(days=365)
    more = {"expires": (start + lifetime).isoformat()} if lifetime else {}
    fake_queue.task(declare("echo x > x", x=file("x", **more)))
    work()
    [created] = fake_queue.artifacts["public/x"].created
    assert created["expires"] == wire(start + timedelta(days=days))


def test_an_upload_is_repeated_from_its_start_on_a_5xx(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task(declare("head -c 300000 /dev/zero > x", x=file("x")))
    fake_queue.script("upload", 503, 500)
    assert result(work()) == "completed"
    assert fake_queue.artifacts["public/x"].content == bytes(300_000)


@pytest.mark.parametrize(
    ("operation", "answers"),
    [
        ("upload", [403]),
        ("upload", [500] * 6),
        ("createArtifact", [200, 409]),
        ("createArtifact", [200, *[503] * 6]),
    ],
)
def test_a_task_whose_artifact_cannot_be_uploaded_fails_and_its_log_says_why(
    fake_queue: FakeQueue, work: Prepare, operation: str, answers: list[int]
) -> None:
    fake_queue.task(declare("echo x > x", x=file("x")))
    fake_queue.script(operation, *answers)
    session = work()
    assert result(session) == "failed"
    [failed] = session.fields(Step.ARTIFACT_FAILED)
    assert failed["name"] == "public/x"
    assert str(answers[-1]) in failed["detail"]
    assert b"[worker] artifact public/x: " in (fake_queue.artifacts[BACKING].content or b"")
    assert "sig=" not in repr(session.steps)


@pytest.mark.parametrize("failing", ["create", "upload"])
def test_a_task_whose_log_cannot_be_uploaded_fails(
    fake_queue: FakeQueue, work: Prepare, failing: str
) -> None:
    fake_queue.task({"command": ["true"]})
    if failing == "create":
        fake_queue.script("createArtifact", 200, 409)
    else:
        fake_queue.script("upload", 403)
    session = work()
    assert result(session) == "failed"
    assert [failed["name"] for failed in session.fields(Step.ARTIFACT_FAILED)] == [BACKING]


def test_content_leaves_out_bytes_appended_later_and_raises_if_the_file_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        content = Content(file)
        with path.open("ab") as more:
            more.write(b"more")
        assert [len(content), *content, *content] == [10, b"0123456789", b"0123456789"]
        os.truncate(path, 5)
        with pytest.raises(OSError, match="shorter"):
            list(content)


def test_a_task_completes_although_the_queue_refuses_its_live_log(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    fake_queue.task({"command": ["true"]})
    fake_queue.script("createArtifact", 409)
    session = work()
    assert result(session) == "completed"
    assert [failed["name"] for failed in session.fields(Step.ARTIFACT_FAILED)] == [LIVE]


def test_a_file_name_that_is_not_utf_8_is_sent_as_its_bytes(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task(declare(r"mkdir d; touch d/$(printf '\303\244\377')", d=folder("d")))
    fake_queue.script("createArtifact", 200, 400)
    session = work()
    assert result(session) == "failed"
    targets = [request.target for request in fake_queue.requests_for("createArtifact")]
    assert targets[1].endswith("/artifacts/public%2Fd%2F%C3%A4%FF")


def test_a_directory_that_is_too_deep_to_be_read_fails_its_artifact(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    down = "n=$(printf '%0200d' 0); mkdir $n; cd -P $n"
    deep = f"mkdir d; cd d; for _ in $(seq 30); do {down}; done"
    fake_queue.task(declare(deep, d=folder("d")))
    session = work()
    assert result(session) == "failed"
    assert "cannot be read" in session.fields(Step.ARTIFACT_FAILED)[0]["detail"]


def test_a_claim_is_reclaimed_while_its_artifacts_are_uploaded(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock
) -> None:
    fake_queue.task(declare("echo x > x", x=file("x")))
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


def test_neither_log_nor_report_is_sent_after_the_claim_is_lost(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock
) -> None:
    fake_queue.task(declare("echo x > x; cp x y", x=file("x"), y=file("y")))
    fake_queue.script("reclaimTask", 409)
    lost = threading.Event()

    def slow() -> None:
        clock.ahead += timedelta(minutes=18)
        assert lost.wait(LONG)

    fake_queue.script("upload", slow)
    session = prepare(max_tasks=1)
    session.on(Step.CLAIM_LOST, lost.set)
    session.start().end()
    assert session.fields(Step.REPORT) == []
    assert set(fake_queue.artifacts) <= {LIVE, "public/x", "public/y"}
    assert not [name for name in fake_queue.operations() if name.startswith("report")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("public/a.txt", "text/plain"),
        ("public/a.log", "text/plain"),
        ("public/a.html", "text/html"),
        ("public/a.json", "application/json"),
        ("public/a.tar.gz", "application/octet-stream"),
        ("public/a", "application/octet-stream"),
        ("data:text/html,x", "application/octet-stream"),
    ],
)
def test_a_content_type_is_guessed_by_the_names_ending(name: str, expected: str) -> None:
    assert content_type(name) == expected
