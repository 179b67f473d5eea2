"""Runs the JavaScript clients with Node.js. This code must accept what they sign, and they what it signs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

_CLIENTS = Path(__file__).parent


def javascript(job: str, **options: Any) -> Any:
    """The answer of ``sign.js`` to one job. If a package is missing, the test fails and says what to do."""
    if not (_CLIENTS / "node_modules").is_dir():
        pytest.fail(f"{_CLIENTS}/node_modules is missing: run scripts/install --services.")
    run = subprocess.run(
        ["node", _CLIENTS / "sign.js"],
        input=json.dumps([{"job": job, **options}]),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        pytest.fail(f"sign.js could not do {job}:\n{run.stderr}")
    return json.loads(run.stdout)[0]
