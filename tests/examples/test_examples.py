"""The test suites in examples/ pass when you run them like a user, with the queue of this checkout."""

import configparser
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.system.processes import output_of

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = Path(sys.executable).parent


def commands_pass(name: str, **env: str) -> None:
    """Check that the commands in the example's tox.ini pass and skip no test."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(EXAMPLES / name / "tox.ini")
    for line in tox["testenv"]["commands"].replace("{posargs}", "-p no:cacheprovider").splitlines():
        printed = output_of(*shlex.split(line), cwd=EXAMPLES / name, env=env)
        assert "skipped" not in printed


@pytest.mark.parametrize("name", ["tox", "scriptworker"])
def test_the_commands_of_the_tox_examples_pass(name: str) -> None:
    commands_pass(name)


@pytest.mark.nightly
def test_the_taskgraph_example_passes() -> None:
    """taskgraph has an environment of its own, because the test environment has the client of 2017."""
    programs = EXAMPLES / "taskgraph/.venv/bin"
    assert (programs / "taskgraph").exists(), f"{programs} is missing: run scripts/install --all"
    commands_pass("taskgraph", PATH=f"{OWN}:{programs}:{os.environ['PATH']}")


@pytest.mark.nightly
def test_the_mocha_example_passes() -> None:
    mocha = EXAMPLES / "mocha/node_modules/.bin/mocha"
    assert mocha.exists(), f"{mocha} is missing: run scripts/install --all"
    printed = output_of(OWN / "legacy-queue", "test", "--", mocha, cwd=EXAMPLES / "mocha")
    assert " passing" in printed
    assert " pending" not in printed
