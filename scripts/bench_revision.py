"""Another revision of this project, checked out beside it, so that scripts/bench can run both in turn."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_COUNT = ROOT / "scripts" / "bench_count.js"
_PYTHON_PINS = ("setup.cfg", "pyproject.toml", "constraints.txt")
_NODE_PINS = ("azurite/package-lock.json",)


@dataclass(frozen=True)
class Revision:
    """What starts its server: the command, and what is added to the environment."""

    suffix: str  # of the names of its sides
    commit: str
    program: tuple[str, ...]
    variables: Mapping[str, str]


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def this_revision() -> Revision:
    """The code as it stands here; the commit is marked where it is changed, and unknown outside of git."""
    try:
        commit = _git("describe", "--always", "--dirty").strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return Revision("", commit, (sys.executable, "-m", "legacy_queue"), _variables(ROOT))


@contextmanager
def other_revision(ref: str) -> Iterator[Revision]:
    """The commit in a temporary worktree.

    Where it pins what this tree does it uses the same virtual environment and the same Azurite; otherwise
    its own scripts/setup.sh installs both, which takes a minute or two.
    """
    commit = _git("rev-parse", "--short", f"{ref}^{{commit}}").strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            python = sys.executable
            if all(_is_same(tree, name) for name in (*_PYTHON_PINS, *_NODE_PINS)):
                (tree / "azurite/node_modules").symlink_to(ROOT / "azurite/node_modules")
            else:
                subprocess.run(["bash", "-c", ". scripts/setup.sh"], cwd=tree, check=True)
                python = str(tree / ".venv/bin/python")
            yield Revision(f"@{ref}", commit, (python, "-m", "legacy_queue"), _variables(tree))
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _variables(tree: Path) -> dict[str, str]:
    """Python imports the package from the tree and not from where the script runs."""
    variables = {"NODE_OPTIONS": f'--require "{_COUNT}"'}
    if "azurite_default_account" in (tree / "legacy_queue/config/settings.py").read_text():
        variables["LEGACY_QUEUE_AZURITE_DEFAULT_ACCOUNT"] = "true"  # with the key of scripts/bench_storage.py
    return {**variables, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}


def _is_same(tree: Path, name: str) -> bool:
    return (tree / name).read_bytes() == (ROOT / name).read_bytes()
