"""scripts/scale counts the requests that a server really sends to Azure."""

import re
import subprocess
import sys

import pytest

from tests.docs.terminal import ROOT

pytestmark = pytest.mark.processes

# what creating, claiming and reporting a task costs; tests/services/test_operation_counts.py shows the same
OPERATIONS = {"tasks.insert": 1, "work.put": 1, "tasks.merge": 2, "work.update": 1, "work.delete": 1}


def test_in_the_simulation_a_task_costs_the_documented_operations() -> None:
    command = [sys.executable, "-m", "gevent.monkey", "--module", "tests.simulation.scale"]
    options = ["--load", "10x1", "--tasks", "600"]
    said = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {name: float(re.findall(rf"{name} ([0-9.]+)", said)[0]) for name in OPERATIONS}
    assert found == pytest.approx(OPERATIONS, rel=0.2)
