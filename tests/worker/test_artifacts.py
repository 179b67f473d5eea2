"""What a run leaves behind: its log, and what its payload declares."""

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
from .stand_in import StandIn, wire

LIVE, BACKING = "public/logs/live.log", "public/logs/live_backing.log"
TEXT = "text/plain; charset=utf-8"


def declare(command: str, **artifacts: Any) -> dict[str, Any]:
    """A task with artifacts that are named ``public/<word>``."""
    return {"command": command, "artifacts": {f"public/{name}": said for name, said in artifacts.items()}}


def file(path: str, **more: str) -> dict[str, str]:
    return {"type": "file", "path": path, **more}


def folder(path: str) -> dict[str, str]:
    return {"type": "directory", "path": path}


def result(session: Session) -> str:
    [report] = session.fields(Step.REPORT)
    return str(report["result"])


def test_the_log_is_an_artifact_and_live_log_leads_to_it(stand_in: StandIn, work: Prepare) -> None:
    task_id = stand_in.task({"command": "echo one; echo two >&2"})
    work()
    backing, live = stand_in.artifacts[BACKING], stand_in.artifacts[LIVE]
    expires = wire(stand_in.expires)
    assert backing.created == [{"storageType": "s3", "contentType": TEXT, "expires": expires}]
    assert (backing.content, backing.headers["Content-Type"]) == (b"one\ntwo\n", TEXT)
    assert live.created[-1] == {
        "storageType": "reference",
        "contentType": TEXT,
        "expires": expires,
        "url": f"{stand_in.root_url}/v1/task/{task_id}/runs/0/artifacts/{BACKING}",
    }


def test_a_log_without_a_line_is_an_empty_artifact(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task({"command": ["true"]})
    assert result(work()) == "completed"
    assert stand_in.artifacts[BACKING].content == b""


def test_a_running_tasks_log_can_be_read_where_live_log_leads(
    stand_in: StandIn, prepare: Prepare, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    stand_in.task({"command": f"echo first; until [ -e {go_on} ]; do sleep 0.02; done; echo second"})
    session = prepare(max_tasks=1).start()
    session.wait_for(Step.RUN)
    [reference] = stand_in.artifacts[LIVE].created
    with requests.get(reference["url"], stream=True, timeout=LONG) as growing:
        assert growing.headers["Content-Type"] == TEXT
        lines = growing.iter_lines(chunk_size=1)
        assert next(lines) == b"first"
        go_on.touch()
        assert list(lines) == [b"second"]
        session.end()
    assert stand_in.artifacts[LIVE].kinds == ["reference", "reference"]
    with pytest.raises(requests.ConnectionError):
        requests.get(reference["url"], timeout=LONG)


def test_a_log_is_not_found_by_who_does_not_know_its_url(stand_in: StandIn, prepare: Prepare) -> None:
    stand_in.task({"command": f"sleep {LONG}"})
    session = prepare(max_tasks=1).start()
    session.wait_for(Step.RUN)
    url = stand_in.artifacts[LIVE].created[0]["url"]
    assert [requests.get(url[:-end], timeout=LONG).status_code for end in (1, 22)] == [404, 404]


def test_without_a_live_log_the_reference_is_made_at_the_end(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task({"command": ["true"]})
    work(live_log=False)
    assert stand_in.operations()[-4:] == ["createArtifact", "upload", "createArtifact", "reportCompleted"]
    assert stand_in.artifacts[LIVE].kinds == ["reference"]


def test_a_reader_that_has_gone_harms_nobody(stand_in: StandIn, prepare: Prepare, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    stand_in.task({"command": f"echo first; until [ -e {go_on} ]; do sleep 0.02; done; seq 100000"})
    session = prepare(max_tasks=1).start()
    session.wait_for(Step.RUN)
    with requests.get(stand_in.artifacts[LIVE].created[0]["url"], stream=True, timeout=LONG) as growing:
        next(growing.iter_content(1))
    go_on.touch()
    session.end()
    assert result(session) == "completed"


@pytest.mark.parametrize("payload", [{"command": 12}, {"command": ["/no/such/command"]}])
def test_the_log_of_a_malformed_payload_says_what_is_wrong_after_that_is_reported(
    stand_in: StandIn, work: Prepare, payload: Any
) -> None:
    stand_in.task(payload)
    work()
    assert (stand_in.artifacts[BACKING].content or b"").startswith(
        b"[worker] malformed payload: payload.command"
    )
    assert stand_in.operations()[-4:] == ["reportException", "createArtifact", "upload", "createArtifact"]


def test_a_declared_file_is_uploaded_before_the_task_is_reported(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task(
        declare("mkdir out; printf '{}' > out/x.json", data=file("out/x.json"), same=file("./out/x.json"))
    )
    assert result(work()) == "completed"
    data = stand_in.artifacts["public/data"]
    expires = wire(stand_in.expires)
    assert data.created == [
        {"storageType": "s3", "contentType": "application/octet-stream", "expires": expires}
    ]
    assert (data.content, data.headers["Content-Length"]) == (b"{}", "2")
    assert stand_in.artifacts["public/same"].content == b"{}"
    assert stand_in.operations()[-1] == "reportCompleted"


def test_a_failed_tasks_artifacts_are_uploaded_too(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task(declare("echo x > x; exit 1", x=file("x")))
    assert result(work()) == "failed"
    assert stand_in.artifacts["public/x"].content == b"x\n"


def test_generic_workers_list_is_understood_with_and_without_names(stand_in: StandIn, work: Prepare) -> None:
    artifacts = [file("a.txt"), file("a.txt", name="public/b/%?#/../c.txt")]
    stand_in.task({"command": "echo a > a.txt", "artifacts": artifacts})
    assert result(work()) == "completed"
    for name in ("a.txt", "public/b/%?#/../c.txt"):
        assert stand_in.artifacts[name].content == b"a\n"
        assert stand_in.artifacts[name].created[0]["contentType"] == "text/plain"


def test_a_directory_is_all_the_files_below_it(stand_in: StandIn, work: Prepare) -> None:
    make = "mkdir -p d/e/f d/empty; echo 1 > d/1.html; echo 2 > d/e/f/2; echo 3 > 'd/e/3 3'; mkfifo d/fifo"
    links = "ln -s 1.html d/link; ln -s e d/folder; ln -s nowhere d/dangling"
    stand_in.task(declare(f"{make}; {links}", d=folder("d")))
    assert result(work()) == "completed"
    found = {name: one.content for name, one in stand_in.artifacts.items() if name.startswith("public/d")}
    assert found == {
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
def test_an_error_stands_for_what_the_task_has_not_made_and_the_task_has_failed(
    stand_in: StandIn, work: Prepare, make: str, declared: dict[str, str], reason: str, says: str
) -> None:
    stand_in.task(declare(make, x=declared, log=file("log")) | {"command": f"echo y > log; {make}"})
    session = work()
    assert result(session) == "failed"
    [error] = stand_in.artifacts["public/x"].created
    assert (error["storageType"], error["reason"]) == ("error", reason)
    assert says in error["message"]
    assert says.encode() in (stand_in.artifacts[BACKING].content or b"")
    assert stand_in.artifacts["public/log"].content == b"y\n"  # the others are uploaded all the same


def test_of_two_files_of_one_name_none_is_lost_without_a_word(stand_in: StandIn, work: Prepare) -> None:
    command = "mkdir d; echo in the folder > d/b; echo another > f"
    stand_in.task({"command": command, "artifacts": {"public/a": folder("d"), "public/a/b": file("f")}})
    session = work()
    assert result(session) == "failed"
    assert stand_in.artifacts["public/a/b"].content == b"in the folder\n"
    assert b"public/a/b: another file" in stand_in.artifacts[BACKING].content


@pytest.mark.parametrize("link", ["ln -s /etc/passwd d/x", "ln -s /etc d/x", "ln -s ../.. d/x"])
def test_a_link_in_a_directory_that_leads_out_of_it_is_refused_and_not_followed(
    stand_in: StandIn, work: Prepare, link: str
) -> None:
    stand_in.task(declare(f"mkdir d; echo a > d/a; {link}", d=folder("d")))
    assert result(work()) == "failed"
    [error] = stand_in.artifacts["public/d/x"].created
    assert error["reason"] == INVALID
    assert stand_in.artifacts["public/d/a"].content == b"a\n"
    assert not [name for name in stand_in.artifacts if name.startswith("public/d/x/")]


@pytest.mark.parametrize(
    ("said", "days"),
    [(timedelta(days=3), 3), (timedelta(days=400), 365), (None, 365)],
)
def test_an_artifact_expires_when_its_task_says_and_never_after_the_task(
    stand_in: StandIn, work: Prepare, said: timedelta | None, days: int
) -> None:
    start = stand_in.expires - timedelta(days=365)
    more = {"expires": (start + said).isoformat()} if said else {}
    stand_in.task(declare("echo x > x", x=file("x", **more)))
    work()
    [created] = stand_in.artifacts["public/x"].created
    assert created["expires"] == wire(start + timedelta(days=days))


def test_an_upload_is_repeated_from_its_start_on_a_5xx(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task(declare("head -c 300000 /dev/zero > x", x=file("x")))
    stand_in.script("upload", 503, 500)
    assert result(work()) == "completed"
    assert stand_in.artifacts["public/x"].content == bytes(300_000)


@pytest.mark.parametrize(
    ("operation", "answers"),
    [
        ("upload", [403]),
        ("upload", [500] * 6),
        ("createArtifact", [200, 409]),
        ("createArtifact", [200, *[503] * 6]),
    ],
)
def test_a_task_whose_artifact_cannot_be_uploaded_has_failed_and_its_log_says_why(
    stand_in: StandIn, work: Prepare, operation: str, answers: list[int]
) -> None:
    stand_in.task(declare("echo x > x", x=file("x")))
    stand_in.script(operation, *answers)
    session = work()
    assert result(session) == "failed"
    [failed] = session.fields(Step.ARTIFACT_FAILED)
    assert failed["name"] == "public/x"
    assert str(answers[-1]) in failed["detail"]
    assert b"[worker] artifact public/x: " in (stand_in.artifacts[BACKING].content or b"")
    assert "sig=" not in repr(session.steps)


@pytest.mark.parametrize("failing", ["create", "upload"])
def test_a_task_without_its_log_has_failed(stand_in: StandIn, work: Prepare, failing: str) -> None:
    stand_in.task({"command": ["true"]})
    if failing == "create":
        stand_in.script("createArtifact", 200, 409)
    else:
        stand_in.script("upload", 403)
    session = work()
    assert result(session) == "failed"
    assert [failed["name"] for failed in session.fields(Step.ARTIFACT_FAILED)] == [BACKING]


def test_content_is_what_the_file_held_or_an_error(tmp_path: Path) -> None:
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


def test_a_task_goes_on_without_a_live_log(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task({"command": ["true"]})
    stand_in.script("createArtifact", 409)
    session = work()
    assert result(session) == "completed"
    assert [failed["name"] for failed in session.fields(Step.ARTIFACT_FAILED)] == [LIVE]


def test_a_file_whose_name_no_artifact_can_have_is_left_to_the_queue_to_refuse(
    stand_in: StandIn, work: Prepare
) -> None:
    stand_in.task(declare(r"mkdir d; touch d/$(printf '\303\244\377')", d=folder("d")))
    stand_in.script("createArtifact", 200, 400)
    session = work()
    assert result(session) == "failed"
    targets = [request.target for request in stand_in.asked("createArtifact")]
    assert targets[1].endswith("/artifacts/public%2Fd%2F%C3%A4%FF")


def test_what_is_too_deep_to_be_read_is_told(stand_in: StandIn, work: Prepare) -> None:
    down = "n=$(printf '%0200d' 0); mkdir $n; cd -P $n"
    deep = f"mkdir d; cd d; for _ in $(seq 30); do {down}; done"
    stand_in.task(declare(deep, d=folder("d")))
    session = work()
    assert result(session) == "failed"
    assert "cannot be read" in session.fields(Step.ARTIFACT_FAILED)[0]["detail"]


def test_a_claim_is_kept_while_its_artifacts_are_uploaded(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock
) -> None:
    stand_in.task(declare("echo x > x", x=file("x")))
    reclaimed = threading.Event()

    def slow() -> None:
        clock.ahead += timedelta(minutes=18)
        assert reclaimed.wait(LONG)

    stand_in.script("upload", slow)
    session = prepare(max_tasks=1)
    session.on(Step.RECLAIM, reclaimed.set)
    session.start().end()
    assert result(session) == "completed"
    assert stand_in.asked("reportCompleted")[0].client_id == "task-client/2"


def test_nothing_more_is_uploaded_nor_reported_once_the_claim_is_lost(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock
) -> None:
    stand_in.task(declare("echo x > x; cp x y", x=file("x"), y=file("y")))
    stand_in.script("reclaimTask", 409)
    lost = threading.Event()

    def slow() -> None:
        clock.ahead += timedelta(minutes=18)
        assert lost.wait(LONG)

    stand_in.script("upload", slow)
    session = prepare(max_tasks=1)
    session.on(Step.CLAIM_LOST, lost.set)
    session.start().end()
    assert session.fields(Step.REPORT) == []
    assert set(stand_in.artifacts) <= {LIVE, "public/x", "public/y"}
    assert not [name for name in stand_in.operations() if name.startswith("report")]


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
