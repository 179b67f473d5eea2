"""deploy/monitoring: promtool of Debian's prometheus checks it, and the server has all its metrics."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.http.calls import Queue

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy/monitoring"
PROMTOOL = ROOT / ".promtool/usr/bin/promtool"


def promtool(*arguments: str, text: str = "") -> None:
    done = subprocess.run(
        [PROMTOOL, *arguments], input=text, capture_output=True, text=True, cwd=FOLDER, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_alerts_fire_when_they_should_and_use_only_metrics_that_the_server_has() -> None:
    promtool("check", "rules", "--lint-fatal", "alerts.yaml")
    promtool("test", "rules", "alerts-test.yaml")
    queue = Queue()
    queue.running()
    queue.send("GET", "/v1/ping", credentials=None).close()
    queue.server.site.metrics.observe("table", 0.1, False)
    served = queue.send("GET", "/metrics", credentials=None).text
    promtool("check", "metrics", text=served)
    [group] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    asked = "\n".join(rule["expr"] for rule in group["rules"])
    names = set(re.findall(r"\b(?:legacy_queue|process)_\w+", asked))
    assert names <= set(re.findall(r"^(\w+)", served, re.MULTILINE))
