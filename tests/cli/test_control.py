"""``legacy-queue clock, fault, requests and reset``, and --control."""

import re
import signal
from pathlib import Path

import pytest

from legacy_queue.domain.ids import slugid
from tests.cli.command_runner import (
    TIME,
    Asking,
    ServedQueue,
    answering,
    ask_at,
    env_for,
    from_json,
    printed,
    refused,
)
from tests.system.processes import run, wait_until


def test_the_clock_is_advanced_frozen_and_released(ask: Asking) -> None:
    assert re.fullmatch(f"{TIME}\n", printed(ask("clock")))
    assert "advance" in printed(ask("clock", "-h"))
    assert re.fullmatch(f"{TIME}, 1h 30m ahead of the real time\n", printed(ask("clock", "advance", "90m")))
    assert re.fullmatch(f"{TIME}, .* ahead of the real time, frozen\n", printed(ask("clock", "freeze")))
    assert from_json(ask("clock", "show", "--json"))["frozen"] is True
    assert from_json(ask("clock", "release", "--json"))["frozen"] is False
    assert from_json(ask("clock", "--json"))["offset"] == pytest.approx(5400, abs=600)


def test_a_task_can_be_created_after_the_clock_was_moved(queue: ServedQueue, ask: Asking) -> None:
    printed(ask("clock", "advance", "4d"))
    task_id = printed(ask("create-task", "system/moved", "--deadline", "1h", "--", "true")).strip()
    assert queue.state(task_id) == "pending"
    assert " 4d " in printed(ask("clock"))


def test_a_fault_can_be_added_listed_and_removed(queue: ServedQueue, ask: Asking) -> None:
    task_id = slugid()
    options = ("--status", "503", "--message", "not now", "--times", "2", "--task", task_id)
    fault_id = printed(ask("fault", "add", "createTask", *options)).strip()
    answer = queue.call("createTask", queue.task_body(), taskId=task_id)
    assert (answer.status_code, answer.get_json()["message"]) == (503, f"not now (fault {fault_id})")
    fault = printed(ask("fault")).strip()
    assert (fault.split()[:2], fault[-8:]) == ([fault_id, "createTask"], "fired: 1")
    assert {f"taskId={task_id}", "status=503", "message=not", "times=2,"} <= {*fault.split()}
    assert printed(ask("fault", "remove", fault_id)) == "fired: 1\n"
    assert printed(ask("fault", "list")) == "There are no faults.\n"
    assert from_json(ask("fault", "list", "--json")) == {"faults": []}


def test_requests_are_listed_with_their_task_caller_and_error(queue: ServedQueue, ask: Asking) -> None:
    task_id = queue.create(workerType="listed")
    queue.claim(task_id)
    assert queue.claim(task_id, workerId="two").status_code == 409
    lines = printed(ask("requests")).splitlines()
    shown = [
        re.fullmatch(r"[\d:.]{12} (\w+) +(\d+ ?\w*) [\d.]+ ms (\S+) by (\S+)(: .+)?", each) for each in lines
    ]
    assert [match and match.groups()[:4] for match in shown] == [
        ("createTask", "200", task_id, "root"),
        ("claimTask", "200", f"{task_id}/0", "group/alice"),
        ("claimTask", "409 RequestConflict", f"{task_id}/0", "group/two"),
    ]
    for options, listed in {
        ("--failed",): ["claimTask"],
        ("--endpoint", "claimTask"): ["claimTask", "claimTask"],
        ("--task", slugid()): [],
        ("--pool", "system/listed", "--limit", "2"): ["claimTask", "claimTask"],
    }.items():
        found = from_json(ask("requests", *options, "--json"))["requests"]
        assert [request["endpoint"] for request in found] == listed
    assert printed(ask("requests", "--task", slugid())) == "No request matches.\n"


def test_equal_requests_in_a_row_are_printed_as_one_line(queue: ServedQueue, ask: Asking) -> None:
    queue.messages(workerType="folded")
    empty = queue.poll_urls(workerType="folded")[0]["signedPollUrl"]
    for _ in range(1100):  # more than fit on a page of the journal
        queue.poll(empty)
    lines = printed(ask("requests", "--limit", "3")).splitlines()
    endpoints = ("azure.receive", "pollTaskUrls", "azure.receive")
    assert [endpoint in line for endpoint, line in zip(endpoints, lines, strict=True)] == [True] * 3
    assert [line.partition("(")[2] for line in lines] == ["7 times)", "", "1100 times)"]


def test_a_reset_asks_before_it_removes_stored_tasks() -> None:
    with answering((200, '{"kept": true}')) as url:
        asked = f"Remove everything that the queue at {url} has stored? [y/N]: Aborted!"
        with_password = url.replace("//", "//me:secret@")
        assert refused(ask_at(with_password, "reset")) == asked.replace("//", "//me:***@")
    with answering((200, "{}")) as url:
        assert printed(ask_at(url, "reset", "--yes")) == "Queue reset.\n"


@pytest.mark.processes
def test_with_follow_new_requests_are_printed_even_after_a_reset_until_a_signal(
    tmp_path: Path, queue: ServedQueue, ask: Asking
) -> None:
    first = queue.create()
    with run(tmp_path, "requests", "--follow", env=env_for(queue.root_url)) as running:
        wait_until(lambda: first in running.output)
        second = queue.create()
        wait_until(lambda: second in running.output)
        assert printed(ask("reset")) == "Queue reset.\n", "for memory storage it does not ask"
        third = queue.create()
        wait_until(lambda: third in running.output)
        assert running.end(signal.SIGINT) == 0
    assert running.output.count("createTask") == 3
    assert re.match(rf"\d\d:\d\d:\d\d\.\d{{3}} createTask +200 .*{first}", running.output)


def test_the_root_url_option_wins_over_a_base_url_in_a_variable(queue: ServedQueue, ask: Asking) -> None:
    elsewhere = "http://127.0.0.1:1/v1"
    assert "does not answer" in refused(ask("clock", LEGACY_QUEUE_BASE_URL=elsewhere))
    printed(ask("clock", "--root-url", queue.root_url, LEGACY_QUEUE_BASE_URL=elsewhere))
    assert "does not answer" in refused(ask("conform", "--observe", LEGACY_QUEUE_BASE_URL=elsewhere), 2)
    observed = ask("conform", "--observe", "--root-url", queue.root_url, LEGACY_QUEUE_BASE_URL=elsewhere)
    assert "the queue has received no request from a worker" in refused(observed, 2)
