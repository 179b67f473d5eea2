"""``--help`` is a page; ``--help-all`` has each setting once, in sections."""

import subprocess
import sys
from collections import Counter

import click
import pytest
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from legacy_queue.cli.options import SECTIONS, SettingsCommand
from legacy_queue.config.settings import DECLARED, wire_name

pytestmark = pytest.mark.processes

WITH_SETTINGS = ("backup", "ca", "config", "queues", "resolve", "restore", "serve", "test", "up")


def helped(command: str, option: str) -> str:
    result = CliRunner().invoke(commands, [command, option])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", WITH_SETTINGS)
def test_help_is_a_page_and_help_all_has_all_options(command: str) -> None:
    assert len(helped(command, "--help").splitlines()) <= 25
    text = helped(command, "--help-all")
    found = commands.get_command(click.Context(commands), command)
    assert isinstance(found, SettingsCommand)
    shown = [param.opts[0] for param in found.params if isinstance(param, click.Option) and not param.hidden]
    assert [option for option in shown if f"  {option}" not in text] == []


def test_each_setting_is_in_one_section() -> None:
    named = Counter(name for names in SECTIONS.values() for name in names)
    assert named == Counter(setting.name for setting in DECLARED)


def test_a_setting_with_few_values_names_them_where_it_is_refused() -> None:
    for setting in DECLARED:
        if words := setting.metadata["words"]:
            result = CliRunner().invoke(commands, ["config", f"--{wire_name(setting.name)}=no-such"])
            assert result.exit_code == 2
            assert all(word in result.output for word in words)


@pytest.mark.parametrize("command", ["backup", "config", "queues", "restore", "serve", "test", "up"])
def test_help_imports_nothing_of_the_server_that_the_command_would_run(command: str) -> None:
    program = [sys.executable, "-X", "importtime", "-m", "legacy_queue", command, "--help"]
    ended = subprocess.run(program, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "legacy_queue.cli.options" in imported
    assert {"legacy_queue.wiring", "legacy_queue.http.app", "gunicorn", "azure"} & imported == set()
