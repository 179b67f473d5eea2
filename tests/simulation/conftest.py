"""Runs the simulation in a process of its own, which gevent patches."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Simulate = Callable[..., str]


@pytest.fixture
def simulate() -> Simulate:
    """What the command prints; fails, with all of it, where a promise is broken."""

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "tests.simulation", *words]
        # a hash of strings that differs from run to run would show that something depends on it
        env = {**os.environ, "PYTHONHASHSEED": "random"}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode:
            pytest.fail(done.stdout + done.stderr, pytrace=False)
        return done.stdout

    return run
