"""deploy/monitoring: promtool of Debian's prometheus checks it, and its metrics are those of a server."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.http.calls import Queue

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy/monitoring"
PROMTOOL = shutil.which("promtool") or str(ROOT / ".promtool/usr/bin/promtool")
# "le" is of histograms; the names of a job, an instance and an alert are Prometheus's own
NAME = re.compile(r"\b(?:legacy_queue|process)_\w+")


def promtool(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [PROMTOOL, *arguments], input=text, capture_output=True, text=True, cwd=FOLDER, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def served() -> str:
    queue = Queue()
    queue.running()
    queue.send("GET", "/v1/ping", credentials=None).close()
    queue.server.metrics.observe("table", 0.1, False)
    return str(queue.send("GET", "/metrics", credentials=None).text)


def expressions() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    [group] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [*shown, *(rule["expr"] for rule in group["rules"])]


def test_each_alert_fires_when_it_should() -> None:
    promtool("check", "rules", "--lint-fatal", "alerts.yaml")
    promtool("test", "rules", "alerts-test.yaml")


def test_the_metrics_are_as_prometheus_wants_them() -> None:
    assert promtool("check", "metrics", text=served()) == ""


def test_each_metric_of_the_dashboard_and_the_alerts_is_served() -> None:
    names = set(re.findall(r"^(\w+)", served(), re.MULTILINE))
    wanted = {name for expression in expressions() for name in NAME.findall(expression)}
    assert wanted <= names, wanted - names


def test_each_expression_of_the_dashboard_is_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions())
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(path))
