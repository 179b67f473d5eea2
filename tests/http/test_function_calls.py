import os
import subprocess
import sys

import pytest

CALLS = 2900  # docs/explanation/architecture.md#what-a-call-costs


@pytest.mark.processes
def test_a_task_costs_as_many_function_calls_as_the_documents_say() -> None:
    program = [sys.executable, "-m", "gevent.monkey", "--module", "tests.http.function_calls"]
    # without tests/child_processes, which would add function calls
    environ = {**os.environ, "PYTHONPATH": ""}
    ran = subprocess.run(program, check=True, capture_output=True, text=True, timeout=120, env=environ)
    calls = float(ran.stdout.split()[-1])
    assert calls < CALLS * 1.05, ran.stdout
    # Python 3.12 and later call no function for a comprehension
    assert calls > CALLS * 0.95 or sys.version_info >= (3, 12), (
        "there are fewer calls now: change the number here and in the docs"
    )
