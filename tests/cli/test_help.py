"""``--help`` fits on a page. ``--help-all`` has every setting once, in sections."""

import click
import pytest
from click.testing import CliRunner

from legacy_queue.cli.command_table import COMMANDS
from legacy_queue.cli.commands import commands
from legacy_queue.cli.options import SettingsCommand
from tests.cli.command_runner import printed

CONTEXT = click.Context(commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_on_a_page_and_help_all_has_all_options(name: str) -> None:
    command = commands.get_command(CONTEXT, name)
    assert command
    assert command.help
    page = printed(CliRunner().invoke(commands, [name, "--help"]))
    assert len(page.splitlines()) <= 45
    if isinstance(command, SettingsCommand):
        assert len(page.splitlines()) <= 25
        text = printed(CliRunner().invoke(commands, [name, "--help-all"]))
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        assert [option for option in options if f"  {option.opts[0]}" not in text] == []


def test_the_names_of_commands_are_listed_and_completed() -> None:
    page = printed(CliRunner().invoke(commands, ["--help"]))
    assert [name for name, row in COMMANDS.items() if f"  {name:<11}  {row.text}" not in page] == []
    assert [item.value for item in commands.shell_complete(CONTEXT, "")] == [*COMMANDS]
