"""The help of each option of each command."""

import json
import subprocess
import sys

from tests.system.processes import LONG

# serve's module patches the process that imports it
OPTIONS = """
import json, click
from legacy_queue.cli.commands import COMMANDS, commands
context = click.Context(commands)
found = {name: commands.get_command(context, name) for name in COMMANDS}
groups = {name: group for name, group in found.items() if isinstance(group, click.Group)}
inner = {f"{name} {below}": command for name, group in groups.items()
         for below, command in group.commands.items()}
print(json.dumps({
    f"{name} {option.opts[0]}": option.get_help_record(click.Context(command))[1]
    for name, command in (found | inner).items()
    for option in command.params
    if isinstance(option, click.Option) and not (option.is_flag and not option.secondary_opts)
}))
"""


def test_each_option_that_takes_a_value_shows_its_default_or_that_it_is_required() -> None:
    command = [sys.executable, "-c", OPTIONS]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True).stdout
    shown: dict[str, str] = json.loads(printed)
    assert [name for name, text in shown.items() if "default: " not in text and "required" not in text] == []
    assert shown["serve --claim-timeout"] == "How long a claim lasts.  [default: 20m]"
    assert shown["serve --trusted-proxy"].endswith("[default: false]")
    assert shown["serve --public-url"].endswith("[default: none]")
    assert shown["serve --clients"].endswith("[default: made up for development]")
