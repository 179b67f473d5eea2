"""The reference agrees with the code. Its generated parts are checked when they are built."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from legacy_queue.http.declared_endpoints import served_by
from tests.docs.terminal import ROOT
from tests.system.processes import LONG
from tests.system.real_clients import python_of_today

pytestmark = pytest.mark.processes

_METHODS = """
import base64, json
base64.encodestring = base64.encodebytes
import taskcluster
methods = taskcluster.Queue.funcinfo
print(json.dumps({name: f"{it['method'].upper()} {it['route']}" for name, it in methods.items()}))
"""


def test_every_page_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """The command is the one in scripts/docs, run in this environment, which has all that it needs."""
    [line] = [line for line in (ROOT / "scripts" / "docs").read_text().splitlines() if "-m sphinx" in line]
    command = line.replace("$venv/bin/python", sys.executable).replace("$root", str(ROOT))
    command = command.replace("$target", str(tmp_path))
    ran = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(tmp_path).with_suffix(""): path for path in tmp_path.rglob("*.html")}
    assert pages <= built.keys()
    lines = [line for path in built.values() for line in path.read_text().splitlines()]
    assert not [line for line in lines if re.search("<(script|link|img)", line) and "//" in line]


@pytest.mark.parametrize("version", ["3.0.2", "113.2.0"])
def test_the_methods_listed_for_a_published_client_are_the_clients(version: str) -> None:
    python = Path(sys.executable) if version == "3.0.2" else python_of_today()
    ran = subprocess.run([python, "-c", _METHODS], capture_output=True, text=True, check=True, timeout=LONG)
    listed = json.loads((ROOT / "docs" / "_ext" / "clients.json").read_text())
    assert json.loads(ran.stdout) == listed[version]
    assert {*listed[version]} <= {endpoint.name for endpoint in served_by("queue", "object")}


def test_the_events_to_watch_for_are_the_warnings_and_errors_that_the_code_logs() -> None:
    page = (ROOT / "docs" / "reference" / "logs.md").read_text()
    section = page.partition("## Events to watch for")[2].partition("\n## ")[0]
    heads = " ".join(re.findall(r"^- ((?:`[a-z-]+`[,;]?\s*)+)", section, re.MULTILINE))
    nodes = [
        node
        for path in (ROOT / "legacy_queue").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    logged = {
        node.args[0].value
        for node in nodes
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("log.warning", "log.error", "log.exception")
        and isinstance(node.args[0], ast.Constant)
    }
    assert len(logged) > 20
    assert logged <= set(re.findall(r"`([a-z-]+)`", section))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert set(re.findall(r"`([a-z-]+)`", heads)) <= texts
