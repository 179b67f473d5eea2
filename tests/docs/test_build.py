"""The documents are built without a warning, by what a reader runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.terminal import ROOT
from tests.system.processes import LONG


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the HTML pages. As scripts/docs builds them, in this environment, which has all of it."""
    target = tmp_path_factory.mktemp("built")
    [line] = [one for one in (ROOT / "scripts" / "docs").read_text().splitlines() if "-m sphinx" in one]
    command = line.replace("$venv/bin/python", sys.executable).replace("$root", str(ROOT))
    ran = subprocess.run(
        ["bash", "-euc", command.replace("$target", str(target))],
        capture_output=True,
        text=True,
        timeout=LONG,
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
