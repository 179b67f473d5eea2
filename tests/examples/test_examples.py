"""The suites of examples/ pass as a user runs them, each in its folder, on the queue of this checkout."""

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.processes import LONG, environment

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = Path(sys.executable).parent


def passes(folder: Path, *command: str | Path, **env: str) -> str:
    """What the command says, which must end with 0."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=2 * LONG,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def commands_pass(name: str, **env: str) -> None:
    """The commands of the example's tox.ini pass, and skip nothing."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(EXAMPLES / name / "tox.ini")
    for line in tox["testenv"]["commands"].replace("{posargs}", "-p no:cacheprovider").splitlines():
        said = passes(EXAMPLES / name, *shlex.split(line), **env)
        assert "skipped" not in said


@pytest.mark.parametrize("name", ["tox", "scriptworker"])
def test_the_commands_of_the_tox_examples_pass(name: str) -> None:
    commands_pass(name)


@pytest.mark.nightly
def test_the_taskgraph_example_passes() -> None:
    """taskgraph is in an environment of its own, since the tests' has the old client."""
    programs = EXAMPLES / "taskgraph/.venv/bin"
    assert (programs / "taskgraph").exists(), f"{programs} is missing: scripts/install --services does it"
    commands_pass("taskgraph", PATH=f"{OWN}:{programs}:{os.environ['PATH']}")


@pytest.mark.nightly
def test_the_mocha_example_passes() -> None:
    mocha = EXAMPLES / "mocha/node_modules/.bin/mocha"
    assert mocha.exists(), f"{mocha} is missing: scripts/install --services does it"
    said = passes(EXAMPLES / "mocha", OWN / "legacy-queue", "test", "--", mocha)
    assert " passing" in said
    assert " pending" not in said
