"""Each order of two calls, a kill at each place of a life, and random runs with all faults break no promise.

The simulation runs in a process of its own, which gevent patches.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def simulate(*words: str) -> str:
    """What the command prints; fails, with all of it, where a promise is broken."""
    # a hash of strings that differs from run to run would show that something depends on it
    env = {**os.environ, "PYTHONHASHSEED": "random"}
    command = [sys.executable, "-m", "tests.simulation", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return done.stdout


def test_each_order_of_two_calls_breaks_no_promise() -> None:
    said = simulate("orders").splitlines()
    assert len(said) == 10
    assert all(int(line.split()[-2]) > 1 for line in said), said


def test_a_kill_at_each_place_of_a_life_breaks_no_promise() -> None:
    said = simulate("kills").splitlines()
    assert len(said) == 13
    assert all(int(line.split()[-2]) > 5 for line in said), said


def test_three_random_runs_break_no_promise() -> None:
    *runs, _ = simulate("usual").splitlines()
    assert len(runs) == 3
    assert all(int(line.split()[4]) > 10 for line in runs), runs  # kills


def test_two_runs_of_a_seed_have_the_same_story(tmp_path: Path) -> None:
    stories = [tmp_path / "one", tmp_path / "other"]
    for story in stories:
        simulate("--seed", "5", "--tasks", "10", "--processes", "3", "--trace", str(story))
    one, other = (story.read_text() for story in stories)
    assert one == other
    assert len(one.splitlines()) > 1000
