"""The reference agrees with the code; its generated parts are tested as they are built."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the HTML pages. As scripts/docs builds them, in this environment, which has all of it."""
    target = tmp_path_factory.mktemp("built")
    [line] = [line for line in (ROOT / "scripts" / "docs").read_text().splitlines() if "-m sphinx" in line]
    command = line.replace("$venv/bin/python", sys.executable).replace("$root", str(ROOT))
    ran = subprocess.run(
        ["bash", "-euc", command.replace("$target", str(target))],
        capture_output=True,
        text=True,
        timeout=2 * LONG,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return target


def test_every_page_is_built_without_a_warning(built: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(built).with_suffix("") for path in built.rglob("*.html")}


def test_no_page_fetches_anything_from_elsewhere(built: Path) -> None:
    fetched = [
        f"{path.name}: {line.strip()}"
        for path in built.rglob("*.html")
        for line in path.read_text().splitlines()
        if ("<script" in line or "<link" in line or "<img" in line) and "//" in line
    ]
    assert fetched == []


@pytest.mark.parametrize("version", ["3.0.2", "113.2.0"])
def test_the_methods_of_a_published_client_are_those_it_has(version: str) -> None:
    python = Path(sys.executable) if version == "3.0.2" else python_of_today()
    ran = subprocess.run([python, "-c", _METHODS], capture_output=True, text=True, check=True, timeout=LONG)
    listed = json.loads((ROOT / "docs" / "_ext" / "clients.json").read_text())
    assert json.loads(ran.stdout) == listed[version]


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
