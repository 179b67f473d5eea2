"""The reference agrees with the code; its generated parts are tested as they are built."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from legacy_queue.cli.commands import COMMANDS
from legacy_queue.config.settings import DECLARED, wire_name
from legacy_queue.domain import errors
from legacy_queue.domain.errors import InjectedError, QueueError
from legacy_queue.domain.events import EXCHANGES
from legacy_queue.http.app import ENDPOINTS
from tests.docs.terminal import ROOT
from tests.system.processes import LONG
from tests.system.real_clients import python_of_today

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


@pytest.mark.parametrize(
    ("page", "anchors"),
    [
        ("http-api", [endpoint.name.lower() for endpoint in ENDPOINTS]),
        ("cli", [f"legacy-queue-{name}" for name in COMMANDS]),
        ("events", list(EXCHANGES)),
    ],
    ids=["each method", "each command", "each exchange"],
)
def test_each_method_command_and_exchange_has_a_section(built: Path, page: str, anchors: list[str]) -> None:
    html = (built / "reference" / f"{page}.html").read_text()
    assert [anchor for anchor in anchors if f'id="{anchor}"' not in html] == []


def test_each_setting_has_a_row_with_its_whole_help(built: Path) -> None:
    html = (built / "reference" / "settings.html").read_text()
    cells = re.findall(r'<tr class="row-\w+"><td><p><code[^>]*><span class="pre">([a-z0-9-]+)</span>', html)
    assert cells == [wire_name(setting.name) for setting in DECLARED]
    text = unescape(re.sub("<[^>]+>", "", html))
    helps = {setting.name: setting.metadata["help"].replace("`", "") for setting in DECLARED}
    assert [name for name, shown in helps.items() if shown not in text] == []


@pytest.mark.parametrize("version", ["3.0.2", "113.2.0"])
def test_the_methods_of_a_published_client_are_those_it_has(version: str) -> None:
    python = Path(sys.executable) if version == "3.0.2" else python_of_today()
    ran = subprocess.run([python, "-c", _METHODS], capture_output=True, text=True, check=True, timeout=LONG)
    listed = json.loads((ROOT / "docs" / "_ext" / "clients.json").read_text())
    assert json.loads(ran.stdout) == listed[version]


def test_the_page_of_errors_has_each_error_with_its_status() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE))
    declared = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, QueueError)
    ]
    own = (kind for kind in declared if kind not in (QueueError, InjectedError))  # these have no code
    known = {kind.__name__: str(kind.status) for kind in own}
    assert rows == {**known, "InternalServerError": "500"}
