"""``--help`` is a page; ``--help-all`` has each setting once, in sections."""

from collections import Counter

import click
import pytest
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from legacy_queue.cli.options import SECTIONS, SettingsCommand
from legacy_queue.config.settings import DECLARED
from tests.cli.asking import printed

WITH_SETTINGS = ("backup", "ca", "config", "queues", "serve", "test", "up")


@pytest.mark.parametrize("command", WITH_SETTINGS)
def test_help_is_a_page_and_help_all_has_all_options(command: str) -> None:
    page, text = (printed(CliRunner().invoke(commands, [command, word])) for word in ("--help", "--help-all"))
    assert len(page.splitlines()) <= 25
    found = commands.get_command(click.Context(commands), command)
    assert isinstance(found, SettingsCommand)
    shown = [param.opts[0] for param in found.params if isinstance(param, click.Option) and not param.hidden]
    assert [option for option in shown if f"  {option}" not in text] == []


def test_each_setting_is_in_one_section() -> None:
    named = Counter(name for names in SECTIONS.values() for name in names)
    assert named == Counter(setting.name for setting in DECLARED)
