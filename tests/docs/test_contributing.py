"""The edits in CONTRIBUTING are applied to a copy of the tree, and the tests show what CONTRIBUTING says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.terminal import ROOT

pytestmark = pytest.mark.processes

_EDIT = re.compile(r"^( *)```diff\n\1\+\+\+ (\S+)\n(.*?)^\1```$", re.M | re.S)
EDITS = [
    (edit[2], re.sub(f"^{edit[1]}", "", edit[3], flags=re.M))
    for edit in _EDIT.finditer((ROOT / "CONTRIBUTING.md").read_text())
]
# tests about every command, page and endpoint, so also about the new ones
OF_ALL = ("tests/cli/test_help.py", "tests/http/test_ui.py", "tests/http/test_scopes.py")
OF_THE_FIRST_CHANGE = "tests/domain/test_authentication.py"
WORDS = "the_declared or help or page or abandon or reason_of_a_refusal"


def applied(edit: str, text: str) -> str:
    """The text after the edit.

    A line of the edit that begins with a space stays, with - goes, with + comes.
    """
    lines = edit.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(before) == 1 or text == before == ""
    return text.replace(before, after) or after


def test_the_edits_of_the_worked_examples_have_the_effects_that_contributing_says(tmp_path: Path) -> None:
    # the last pattern is for files that are being written
    left_out = shutil.ignore_patterns("node_modules", ".venv", "*.pyc.*")
    for name in ("legacy_queue", "docs", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    for name in ("pyproject.toml", "setup.cfg"):
        shutil.copy(ROOT / name, tmp_path)
    for name, edit in EDITS:
        path = tmp_path / name
        path.write_text(applied(edit, path.read_text() if path.exists() else ""))
    for command in (
        ("ruff", "check", "legacy_queue"),
        ("ruff", "format", "--check", "legacy_queue"),
        (
            "pytest",
            "-q",
            "-n0",
            "-m",
            "",
            "-k",
            WORDS,
            *OF_ALL,
            OF_THE_FIRST_CHANGE,
            "tests/docs/worked_example_checks.py",
        ),
    ):
        words = [sys.executable, "-m", *command]
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
