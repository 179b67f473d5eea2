"""What README says to type, run as it stands there.

`scripts/up` runs in this tree, where everything is installed: what it installs on a clean one takes a minute,
and `scripts/test` has run it. Only port and data directory are others than README's, by variables, since
many tests run on one machine. `scripts/test` and what measures take long: that they are there, and without a
mistake of syntax, is all that is shown here.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from legacy_queue.config.settings import DECLARED, wire_name
from tests.system.processes import LONG, environment, wait_until

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)

# Each line of README's shell snippets, and what shows that it works.
LINES = {
    "scripts/up": "the fixture up",
    "scripts/up --demo": "tests/cli/test_up.py, with the same options",
    "scripts/up --rabbitmq": "tests/cli/test_up.py, with the same options",
    "scripts/test": "the run of this test",
    "scripts/chaos": "tests/system/test_chaos.py, the short form",
    "python3 -m venv client": "the snippet runs in this environment, which has the same version of",
    "client/bin/pip install taskcluster==3.0.2": "taskcluster, and an interpreter",
    "client/bin/python": "test_the_python_snippet_prints_the_signed_urls_of_seven_queues",
    'curl -N "$LEGACY_QUEUE_ROOT_URL/events?exchange=task-pending&routingKey=primary.%23"': "test_events_...",
    ".venv/bin/legacy-queue events --routing-key 'route.my-route'": "test_events_...",
}
HELPS = """
import json
from click.testing import CliRunner
from legacy_queue.cli.commands import _COMMANDS, commands
print(json.dumps({name: CliRunner().invoke(commands, [name, "--help"]).output for name in _COMMANDS}))
"""
FOLLOWING = [line for line in LINES if "events" in line]


def fences(language: str) -> list[str]:
    return [text for one, text in FENCES if one == language]


@contextmanager
def started(command: str, folder: Path, env: dict[str, str]) -> Iterator[Path]:
    """A shell command that does not end by itself, in the project's folder; its outputs are in the file."""
    said = folder / "said"
    with (
        said.open("wb") as output,
        subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            yield said
        finally:
            process.terminate()
            process.wait(LONG)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a terminal in which the export lines were entered that ``scripts/up`` prints."""
    folder = tmp_path_factory.mktemp("up")
    env = environment(LEGACY_QUEUE_PORT="0", LEGACY_QUEUE_DATA_DIR=str(folder / "data"))
    with started("scripts/up", folder, env) as said:
        wait_until(lambda: "\nCtrl-C stops" in said.read_text())
        exports = dict(re.findall(r"(\w+)=(\S+)", "\n".join(re.findall(r"export .*", said.read_text()))))
        yield environment(**exports)


def test_every_snippet_is_of_a_kind_that_is_tested_here() -> None:
    assert {language for language, _ in FENCES} == {"sh", "python", "text", "toml"}
    lines = [line for text in fences("sh") for line in text.splitlines()]
    assert sorted(lines) == sorted(LINES)


def test_the_python_snippet_prints_the_signed_urls_of_seven_queues(up: dict[str, str]) -> None:
    snippet, _ = fences("python")
    ran = run_python(snippet, up)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("'signedPollUrl'") == 7


def test_the_snippet_for_a_test_suite_starts_a_server_and_ends_it() -> None:
    _, snippet = fences("python")
    bin_dir = str(Path(sys.executable).parent)
    ran = run_python(
        f"{snippet}\nprint(server.returncode, *ready)", environment(PATH=f"{bin_dir}:{os.defpath}")
    )
    assert ran.stdout == "0 rootUrl baseUrl port pid storage credentials\n", ran.stderr


def run_python(snippet: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", snippet], env=env, capture_output=True, text=True, timeout=LONG, check=False
    )


def test_the_client_that_is_to_be_installed_is_the_one_that_runs_here() -> None:
    [version] = re.findall(r"pip install taskcluster==(\S+)", README)
    assert importlib.metadata.version("taskcluster") == version


@pytest.mark.parametrize("command", FOLLOWING)
def test_events_are_followed_by_what_is_to_be_typed(up: dict[str, str], tmp_path: Path, command: str) -> None:
    with started(command, tmp_path, up) as said:
        wait_until(lambda: "retry: " in said.read_text() or "is being followed" in said.read_text())


def test_the_settings_file_is_accepted_as_it_stands(tmp_path: Path) -> None:
    [text] = fences("toml")
    (tmp_path / "settings.toml").write_text(text)
    shown = CliRunner().invoke(commands, ["config", "--config", str(tmp_path / "settings.toml")])
    assert shown.exit_code == 0, shown.output
    lines = dict(line.split(" = ", 1) for line in shown.output.splitlines())
    for name in tomllib.loads(text):
        assert f"  # {name} in " in lines[name]


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """What each command says of itself; serve's module patches the process that imports it."""
    printed = subprocess.run(
        [sys.executable, "-c", HELPS], capture_output=True, text=True, timeout=LONG, check=True
    ).stdout
    return dict(json.loads(printed))


def test_each_command_that_is_mentioned_has_the_options_that_are_mentioned_with_it(
    helps: dict[str, str],
) -> None:
    mentioned = re.findall(r"`legacy-queue ([a-z-]+)([^`]*)`", README)
    mentioned += [("up", line) for line in LINES if line.startswith("scripts/up")]
    assert {name for name, _ in mentioned} == helps.keys()
    for name, rest in mentioned:
        options = re.findall(r"--[a-z0-9-]+", rest.partition(" -- ")[0])
        assert [one for one in options if one not in helps[name]] == []


@pytest.mark.parametrize("script", sorted(set(re.findall(r"\bscripts/([a-z-]+)", README))))
def test_each_script_that_is_mentioned_is_a_command_without_a_mistake_of_syntax(script: str) -> None:
    path = ROOT / "scripts" / script
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_the_table_has_every_setting_and_its_default() -> None:
    table = README.partition("| setting | default | |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:3]] for row in table.splitlines()[2:]]
    names = [name for cells in rows for name in re.findall(r"`([a-z0-9-]+)`", cells[0])]
    assert sorted(names) == sorted(wire_name(one.name) for one in DECLARED if one.name != "connection_string")
    shown = dict(
        line.split(" = ", 1) for line in CliRunner().invoke(commands, ["config"]).output.splitlines()
    )
    for cells in rows:
        is_literal = re.fullmatch(r"(`[^`]+`(, )?)+", cells[1])
        defaults = re.findall(r"`([^`]+)`", cells[1]) if is_literal else []
        for name, default in zip(re.findall(r"`([a-z0-9-]+)`", cells[0]), defaults, strict=False):
            assert shown[name].partition("  # ")[0] in (default, json.dumps(default))
