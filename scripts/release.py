"""Builds the package and shows that it stands alone: see scripts/release. Needs the extra ``bare``."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGAN = time.monotonic()
OLDEST_PYTEST = "pytest ==7.0.1"  # that the fixtures are for; tests/examples runs the newest


def say(what: str) -> None:
    print(f"{time.monotonic() - BEGAN:5.1f} s  {what}", flush=True)


def run(*words: str | Path, cwd: Path, expected: int = 0, env: Mapping[str, str] | None = None) -> str:
    """All output of the command. Another exit code than ``expected`` ends the script and shows the output."""
    # the variables of the tox around this script are not for the tox that it starts
    own = {name: value for name, value in os.environ.items() if not name.startswith("TOX_")}
    whole = {**own, **(env or {})}
    done = subprocess.run(
        words, cwd=cwd, env=whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )
    if done.returncode != expected:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def files(folder: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
    }


def copy(tree: Path) -> Path:
    """Copies the files that git has or would add, and nothing that was installed or built here."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    return tree


def build(tree: Path, dist: Path) -> tuple[Path, Path, Path]:
    """The sdist, the wheel made from it, and a wheel made from the tree."""
    words = (sys.executable, "-m", "build", "--no-isolation", "--outdir")
    # first: a build leaves files in the tree
    run(*words, dist / "tree", "--wheel", tree, cwd=dist)
    shutil.rmtree(tree / "build")
    run(*words, dist, tree, cwd=dist)
    return next(dist.glob("*.tar.gz")), next(dist.glob("*.whl")), next(dist.glob("tree/*.whl"))


def check_contents(tracked: set[str], sdist: Path, *wheels: Path) -> None:
    with tarfile.open(sdist) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    if missing := tracked - packed:
        sys.exit(f"{sdist.name} lacks {', '.join(sorted(missing))}: see MANIFEST.in")
    ours = {name for name in tracked if name.startswith("legacy_queue/")}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        packed = {name for name in names if ".dist-info/" not in name}
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
            sys.exit(f"{wheel} lacks its license")
        if packed != ours:
            sys.exit(f"{wheel} lacks, or has beside the package: {', '.join(sorted(packed ^ ours))}")


def show(wheel: Path, folder: Path) -> None:
    """The wheel alone runs a task on each storage, and names the extra that it lacks."""
    folder.mkdir()
    venv.create(folder / "venv")
    python, command = folder / "venv/bin/python", folder / "venv/bin/legacy-queue"
    # as on a machine without a C compiler
    run(sys.executable, "-m", "pip", "--python", python, "install", wheel, cwd=folder, env={"CC": "false"})
    env = {"HOME": str(folder), "PYTHONPATH": ""}
    where = run(python, "-c", "import legacy_queue; print(legacy_queue.__file__)", cwd=folder, env=env)
    if not Path(where).is_relative_to(folder):
        sys.exit(f"{wheel} is not what runs, but {where}")
    options = ("--storage=memory", "--amqp-url=amqp://h")
    said = run(command, "serve", *options, cwd=folder, expected=1, env=env)
    if "legacy-queue[amqp]" not in said:
        sys.exit(f"legacy-queue serve without the extra amqp: {said}")
    for storage in ("embedded", "memory", "azurite"):
        said = run(command, "up", "--demo", "--storage", storage, "--data-dir", storage, cwd=folder, env=env)
        if "is completed, run 0" not in said:
            sys.exit(f"no task was completed on {storage}:\n{said}")
        say(f"{wheel.name} completed a task on {storage}")


def show_fixture(wheel: Path, example: Path, folder: Path) -> None:
    """tox runs the tests of a project on the queue that the wheel brings."""
    folder.mkdir()
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pin for pin in pins if not pin.startswith("pytest==")))
    deps = f"testenv.deps={wheel}\n{OLDEST_PYTEST}"
    words = ("run", "--conf", example, "--workdir", folder / "tox", "--override", deps)
    run(sys.executable, "-m", "tox", *words, cwd=example, env={"PIP_CONSTRAINT": str(constraints)})
    say(f"{wheel.name} gave the tests in {example.parent.name}/{example.name} their queue")


def main(dist: Path) -> None:
    dist.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        tree = copy(scratch / "tree")
        tracked = files(tree)
        (scratch / "dist").mkdir()
        sdist, wheel, from_tree = build(tree, scratch / "dist")
        say(f"built {sdist.name} and {wheel.name}")
        check_contents(tracked, sdist, wheel, from_tree)
        run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, from_tree, cwd=scratch)
        with ThreadPoolExecutor() as threads:
            shown = [
                threads.submit(show, wheel, scratch / "alone"),
                threads.submit(show_fixture, wheel, tree / "examples/tox", scratch / "tox"),
            ]
        for each in shown:
            each.result()
        for file in (sdist, wheel):
            shutil.copy(file, dist)
            say(f"{dist / file.name} is {file.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
