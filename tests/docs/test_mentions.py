"""What the pages mention is there: commands and their options, scripts, files."""

import importlib.metadata
import json
import re
import subprocess
import sys

import pytest

from tests.docs.terminal import ROOT
from tests.docs.test_pages import PAGES
from tests.system.processes import LONG

TEXT = {path: path.read_text() for path in PAGES}
ALL = "\n".join(TEXT.values())
HELPS = """
import json
import click
from click.testing import CliRunner
from legacy_queue.cli.commands import COMMANDS, commands

def helps(command, words):
    inner = command.commands if isinstance(command, click.Group) else {}
    own = CliRunner().invoke(commands, [*words, "--help"]).output
    return own + "".join(helps(one, [*words, name]) for name, one in inner.items())

print(json.dumps({name: helps(commands.get_command(None, name), [name]) for name in COMMANDS}))
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of each command and its subcommands, from a new process, which the module of serve patches."""
    printed = subprocess.run(
        [sys.executable, "-c", HELPS], capture_output=True, text=True, timeout=LONG, check=True
    ).stdout
    return dict(json.loads(printed))


def test_each_command_that_is_mentioned_has_the_options_that_are_mentioned_with_it(
    helps: dict[str, str],
) -> None:
    mentioned = re.findall(r"`legacy-queue ([a-z][a-z-]*)([^`]*)`", ALL)
    mentioned += [("up", rest) for rest in re.findall(r"`scripts/up([^`]*)`", ALL)]
    assert mentioned
    assert [name for name, _ in mentioned if name not in helps] == []
    for name, rest in mentioned:
        options = re.findall(r"--[a-z0-9-]+", rest.partition(" -- ")[0])
        assert [option for option in options if option not in helps[name]] == []


@pytest.mark.parametrize("script", sorted(set(re.findall(r"\bscripts/([a-z-]+)\b(?!\.|/)", ALL))))
def test_each_script_that_is_mentioned_can_be_run_and_has_valid_syntax(script: str) -> None:
    path = ROOT / "scripts" / script
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_each_file_that_is_linked_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    linked = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in linked if not (ROOT / link).exists()] == []


def test_the_docs_install_the_version_of_the_client_that_the_tests_use() -> None:
    assert f"pip install taskcluster=={importlib.metadata.version('taskcluster')}\n" in ALL
