"""Checks what the edits in CONTRIBUTING add. test_contributing.py runs this in an edited copy of the tree."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import legacy_queue
from legacy_queue.cli.commands import commands
from legacy_queue.http.declared_endpoints import FAULT_TARGETS, NOT_IN_JOURNAL
from tests.cli.command_runner import printed, refused, served
from tests.http import calls
from tests.http.calls import TASK_ID, TESTED, TODAY, Queue, holding, reference, succeeded
from tests.http.test_ui import shown, tree_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reference_pages() -> Any:
    """The module with the functions that write the generated parts of the reference."""
    assert Path(legacy_queue.__file__).is_relative_to(ROOT)
    sys.path.append(str(ROOT / "docs/_ext"))
    return importlib.import_module("generated")


def completed(words: str) -> str:
    """What a shell offers to complete the last of these words."""
    env = {"COMP_WORDS": f"legacy-queue {words}", "COMP_CWORD": str(len(words.split()))}
    env["_LEGACY_QUEUE_COMPLETE"] = "bash_complete"
    return printed(CliRunner().invoke(commands, env=env, prog_name="legacy-queue"))


def test_the_declared_endpoint_works(reference_pages: Any) -> None:
    queue = holding("queue:abandon-task:" + TASK_ID)
    other = queue.create()
    queue.create(TASK_ID)
    calls.refused(queue.call("abandonTask", None, TESTED, taskId=other), 403, "InsufficientScopes")
    answer = succeeded(queue.call("abandonTask", None, TESTED, TODAY, taskId=TASK_ID))
    assert answer.get_json()["status"]["runs"][0]["reasonResolved"] == "canceled"
    assert "abandonTask" in [entry["name"] for entry in reference()["entries"]]
    assert "abandonTask" in [target.endpoint for target in FAULT_TARGETS]
    assert "/task/<taskId>/abandon" in reference_pages.endpoints()


def test_the_declared_setting_works(reference_pages: Any, tmp_path: Path) -> None:
    file = tmp_path / "queue.toml"
    file.write_text('pager-key = "S3CRET"')
    for words, env, source in (
        (["--pager-key", "S3CRET"], {}, "--pager-key"),
        ([], {"LEGACY_QUEUE_PAGER_KEY": "S3CRET"}, "LEGACY_QUEUE_PAGER_KEY"),
        (["--config", str(file)], {}, f"pager-key in {file}, line 1"),
    ):
        output = printed(CliRunner().invoke(commands, ["config", *words], env=env))
        assert (f'pager-key = "***"  # {source}\n' in output, "S3CRET" in output) == (True, False)
    assert "--pager-key" in refused(CliRunner().invoke(commands, ["config", "--pagre-key", "me"]), 2)
    assert "--pager-key" in printed(CliRunner().invoke(commands, ["serve", "--help-all"]))
    assert "plain,--pager-key" in completed("serve --pag")
    assert "`pager-key`" in reference_pages.settings()


def test_the_declared_command_works(reference_pages: Any) -> None:
    assert "\n  uptime " in printed(CliRunner().invoke(commands, ["--help"]))
    assert "plain,uptime" in completed("up")
    with served() as queue:
        assert printed(queue.command("uptime")).endswith(" seconds\n")
    assert "## legacy-queue uptime" in reference_pages.command_line()


def test_the_declared_page_works() -> None:
    queue = Queue()
    answer = shown(queue, "/ui/about")
    assert (answer.status_code, "publishes to" in answer.text) == (200, True)
    assert "/ui/about" in tree_of(shown(queue)).xpath("//nav/a/@href")
    assert "aboutPage" in NOT_IN_JOURNAL
