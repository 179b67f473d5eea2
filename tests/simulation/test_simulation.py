"""No promise is broken by any order of two calls, by a kill at any point, or in random runs with all faults.

The simulation runs in a process of its own, which gevent patches.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def simulate(*words: str) -> str:
    """Run the simulation. Returns what it prints. If a promise is broken, the test fails with this output."""
    # a random hash seed shows if a result depends on the hash of strings
    env = {**os.environ, "PYTHONHASHSEED": "random"}
    command = [sys.executable, "-m", "tests.simulation", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return done.stdout


def test_no_order_of_two_calls_breaks_a_promise() -> None:
    said = simulate("orders").splitlines()
    assert len(said) == 10
    assert all(int(line.split()[-2]) > 1 for line in said), said


def test_no_kill_at_any_point_of_a_scenario_breaks_a_promise() -> None:
    said = simulate("kills").splitlines()
    assert len(said) == 13
    assert all(int(line.split()[-2]) > 5 for line in said), said


def test_three_random_runs_break_no_promise() -> None:
    *runs, _ = simulate("usual").splitlines()
    assert len(runs) == 3
    # the word is the number of kills
    assert all(int(line.split()[4]) > 10 for line in runs), runs


def test_two_runs_with_the_same_seed_take_the_same_steps(tmp_path: Path) -> None:
    traces = [tmp_path / "one", tmp_path / "other"]
    for trace in traces:
        simulate("--seed", "5", "--tasks", "10", "--processes", "3", "--trace", str(trace))
    one, other = (trace.read_text() for trace in traces)
    assert one == other
    assert len(one.splitlines()) > 1000
