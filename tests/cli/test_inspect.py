"""``legacy-queue status, group, log, cancel, rerun``, and how commands find the server."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from legacy_queue.cli.commands import commands
from legacy_queue.domain.ids import slugid
from tests.cli.command_runner import Asking, ServedQueue, answering, ask_at, from_json, printed, refused
from tests.system.processes import serve


def test_status_says_why_a_task_waits_and_what_happened_to_it(queue: ServedQueue, ask: Asking) -> None:
    queue.poll_urls(workerType="status-worker")
    task_id = queue.create(workerType="status-wroker")
    first, what, why, *more = printed(ask("status", task_id)).splitlines()
    assert first == f"{task_id} system/status-wroker pending: run 0 pending"
    assert what == '  The task "a name" was created 0 s ago.'
    asked = "No worker has asked for system/status-wroker in the last 10 days."
    said = f"{asked} Workers ask for system/status-worker."
    assert why == f"  {said}"
    assert re.fullmatch(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} .*", more[-1])
    assert from_json(ask("status", task_id, "--json"))["waitsFor"][0]["sentence"] == said


def test_if_nobody_asks_for_a_pool_status_names_the_pool_that_you_may_have_meant(
    queue: ServedQueue, ask: Asking
) -> None:
    queue.create(workerType="workers")
    said = "No worker has called for system/workers in the last ten days.\n"
    assert printed(ask("workers", "--pool", "system/workers")) == said
    said = "No worker has called for system/wrokers in the last ten days. Did you mean system/workers?\n"
    assert printed(ask("workers", "--pool", "system/wrokers")) == said


def test_with_follow_status_is_printed_again_until_the_task_is_resolved(
    queue: ServedQueue, ask: Asking
) -> None:
    task_id = queue.create(workerType="watched")
    pending = printed(ask("status", task_id, "--json"))
    queue.ask("cancelTask", taskId=task_id)
    resolved = printed(ask("status", task_id, "--json"))
    with answering((200, pending), (200, pending), (200, resolved)) as url:
        lines = printed(ask_at(url, "status", "--watch", task_id)).splitlines()
    assert [line for line in lines if line.startswith(task_id)] == [
        f"{task_id} system/watched pending: run 0 pending",
        f"{task_id} system/watched exception: run 0 exception (canceled)",
    ]


def test_if_a_list_is_incomplete_standard_error_says_so(queue: ServedQueue, ask: Asking) -> None:
    for worker_type in ("listed", "listed", "another"):
        queue.create(workerType=worker_type)
    cut = ask("tasks", "--limit", "1", "--pool", "system/listed")
    # the queue does not say how many, because it would have to read all tasks
    said = "Listed 1 tasks. There may be more. --limit 0 lists all.\n"
    assert (len(cut.stdout.splitlines()), cut.stderr) == (2, said)
    whole = ask("tasks", "--limit", "0", "--pool", "system/listed")
    assert (len(whole.stdout.splitlines()), whole.stderr) == (3, "")
    for command in ("pools", "workers"):
        cut = ask(command, "--limit", "1", "--json")
        assert cut.stderr == "Listed 1 of 2 pools. --limit 0 lists all.\n"
        assert json.loads(cut.stdout)
        assert ask(command, "--limit", "0").stderr == ""


def test_a_group_is_listed_in_the_shape_of_2018_too(queue: ServedQueue, ask: Asking) -> None:
    task_id = queue.create(workerType="grouped", priority="high")
    base_url = {"LEGACY_QUEUE_BASE_URL": f"{queue.root_url}/v1", "TASKCLUSTER_ROOT_URL": ""}
    row = printed(ask("group", task_id, **base_url)).splitlines()[1].split()
    assert (row[0], row[-3]) == (task_id, "high")


def test_tasks_of_a_server_of_0_1_0_are_listed_without_name_and_age(queue: ServedQueue, ask: Asking) -> None:
    task_id = queue.create(workerType="early")
    answer = from_json(ask("tasks", "--json"))
    for added in ("name", "created"):
        del answer["tasks"][0][added]
    with answering((200, json.dumps({"tasks": answer["tasks"]}))) as url:
        assert printed(ask_at(url, "tasks")).splitlines()[1].split()[:4] == [task_id, "-", "pending", "-"]


def test_an_unknown_task_and_a_word_that_is_not_a_task_id_are_refused(ask: Asking) -> None:
    assert "404: there is no task" in refused(ask("status", slugid()))
    assert "'nothing': expected a taskId" in refused(ask("status", "nothing"), 2)


def test_a_task_is_canceled_and_run_again(queue: ServedQueue, ask: Asking) -> None:
    task_id = queue.create(workerType="changed")
    pool = f"{task_id} system/changed"
    assert printed(ask("cancel", task_id)) == f"{pool} exception: run 0 exception (canceled)\n"
    assert printed(ask("rerun", task_id)) == f"{pool} pending: run 0 exception (canceled), run 1 pending\n"


@pytest.mark.parametrize("start", ["-", "--"])
def test_an_id_that_begins_with_a_dash_is_not_read_as_an_option(
    queue: ServedQueue, ask: Asking, start: str
) -> None:
    task_id = f"{start}{slugid()[len(start) :]}"
    queue.create(task_id, taskGroupId=task_id)
    assert from_json(ask("status", task_id, "--json"))["status"]["taskId"] == task_id
    assert printed(ask("group", "--limit", "1", task_id)).splitlines()[1].split()[0] == task_id
    assert "run 0 exception (canceled)" in printed(ask("cancel", task_id))


def test_the_log_of_a_task_is_printed(queue: ServedQueue, ask: Asking) -> None:
    task_id = queue.running()
    assert f"task {task_id} has no log: it has no artifacts" in refused(ask("log", task_id))
    created = queue.artifact(task_id, "public/logs/live.log").get_json()
    queue.upload(created["putUrl"], b"hello\n")
    assert printed(ask("log", task_id)) == "hello\n"
    assert printed(ask("log", task_id, "--artifact", "public/logs/live.log")) == "hello\n"
    assert "404" in refused(ask("log", task_id, "--artifact", "public/none"))
    lost = (404, "<Error/>", {"x-ms-error-code": "BlobNotFound"})
    with answering(lost) as storage, answering((303, "", {"Location": storage})) as url:
        said = refused(ask_at(url, "log", task_id, "--artifact", "public/lost"))
    assert said == f"Error: the server at {storage} answered 404: Not Found"


@pytest.mark.processes
def test_commands_find_the_server_of_the_data_directory_while_it_runs(tmp_path: Path) -> None:
    given = ("LEGACY_QUEUE_", "TASKCLUSTER_")
    cleared: dict[str, str | None] = {name: None for name in os.environ if name.startswith(given)}

    def ask_without_variables(**env: str) -> Result:
        env = {"LEGACY_QUEUE_DATA_DIR": str(tmp_path / "data"), **env}
        return CliRunner().invoke(commands, ["pools"], env={**cleared, **env})

    with serve(tmp_path) as server:
        file = server.data_dir / "server.json"
        printed(ask_without_variables())
        assert json.loads(file.read_text())["rootUrl"] == server.root_url
        assert file.stat().st_mode & 0o777 == 0o600
        other = ask_without_variables(TASKCLUSTER_ROOT_URL="http://127.0.0.1:1")
        assert "http://127.0.0.1:1/api/queue/v1 needs credentials: set TASKCLUSTER_CLIENT_ID" in refused(
            other, 2
        )
    assert not file.exists()
    gone = ask_without_variables()
    assert "No queue runs in this directory: run `legacy-queue up` here" in gone.output
