"""Another revision of this project, checked out beside it, so that scripts/bench can run both in turn."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_COUNT = ROOT / "scripts" / "bench_count.js"


@dataclass(frozen=True)
class Revision:
    """What starts its server: the command, and what is added to the environment."""

    suffix: str  # of the names of its sides
    commit: str
    program: tuple[str, ...]
    variables: Mapping[str, str]
    storages: tuple[str, ...]
    azurite_options: tuple[str, ...]  # with which Azurite has the well-known account


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def this_revision() -> Revision:
    """The code as it stands here; the commit is marked where it is changed, and unknown outside of git."""
    try:
        commit = _git("describe", "--always", "--dirty").strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return _revision("", commit, ROOT, sys.executable)


@contextmanager
def other_revision(ref: str) -> Iterator[Revision]:
    """The commit in a temporary worktree, where its own scripts/setup.sh installs what it needs: two minutes.

    It gets the Python that runs this.
    """
    commit = _git("rev-parse", "--short", f"{ref}^{{commit}}").strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            path = f"{sys.base_exec_prefix}/bin:{os.environ['PATH']}"
            command = ["bash", "-c", ". scripts/setup.sh"]
            subprocess.run(command, cwd=tree, env={**os.environ, "PATH": path}, check=True)
            yield _revision(f"@{ref}", commit, tree, str(tree / ".venv/bin/python"))
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _revision(suffix: str, commit: str, tree: Path, python: str) -> Revision:
    """Python imports the package from the tree and not from where the script runs."""
    package = tree / "legacy_queue"
    storages = ("embedded", "memory", "azurite")[not (package / "adapters/embedded").is_dir() :]
    has_own_key = "azurite_default_account" in (package / "config/settings.py").read_text()
    return Revision(
        suffix,
        commit,
        (python, "-m", "legacy_queue"),
        {
            "NODE_OPTIONS": f'--require "{_COUNT}"',
            "PATH": f"{tree}/azurite/node_modules/.bin:{os.environ['PATH']}",
            "PYTHONPATH": str(tree),
            "PYTHONSAFEPATH": "1",
        },
        storages,
        ("--azurite-default-account",) if has_own_key else (),
    )
