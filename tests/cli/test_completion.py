"""TAB completes names that only the running queue knows, and never prints an error."""

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from legacy_queue.conform.rules import RULES
from tests.cli.command_runner import ServedQueue, env_for, from_json, refused


def completed(*words: str) -> list[str]:
    """What a shell offers to complete the last of these words."""
    *before, begun = words
    shell = BashComplete(commands, {}, "legacy-queue", "_LEGACY_QUEUE_COMPLETE")
    return [item.value for item in shell.get_completions(before, begun)]


def test_words_of_the_running_queue_are_completed(
    queue: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env_for(queue.root_url).items():
        monkeypatch.setenv(name, value)
    task_id = queue.create(workerType="completed")
    for command in ("status", "log", "cancel", "rerun"):
        assert completed(command, task_id[:3]) == [task_id]
    assert completed("create-task", "system/completed", "--depends-on", "") == [task_id]
    assert completed("peek", "sys") == completed("workers", "--pool", "") == ["system/completed"]
    assert completed("group", "") == [
        from_json(queue.command("status", task_id, "--json"))["status"]["taskGroupId"]
    ]
    assert completed("fault", "add", "claimT") == ["claimTask"]
    assert completed("requests", "--endpoint", "azure.r") == ["azure.receive"]
    added = queue.command("fault", "add", "claimTask", "--status", "503").output.strip()
    assert completed("fault", "remove", "") == [added]


def test_without_a_queue_nothing_is_completed_or_printed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in env_for("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    assert completed("status", "") == completed("fault", "add", "") == []
    monkeypatch.setenv("TASKCLUSTER_ROOT_URL", "no URL")
    assert completed("status", "") == []
    assert capfd.readouterr() == ("", "")


def test_the_error_for_a_misspelled_rule_of_conform_names_the_nearest() -> None:
    said = refused(CliRunner().invoke(commands, ["conform", "--rule", "encode-receipt", "--", "true"]), 2)
    assert "'encode-receipt': expected a rule; the nearest is 'encode-the-receipt'" in said


def test_rules_of_conform_are_completed_without_a_queue() -> None:
    assert completed("conform", "--rule", "") == [rule.id for rule in RULES]
