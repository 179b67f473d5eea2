"""podman, and the image that it builds of this tree on a base made of Debian's packages."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self

from tests.system.processes import wait_until

ROOT = Path(__file__).parents[2]
PODMAN = Path(__file__).parent / "podman"
IMAGE = "localhost/legacy-queue"
_BUILD = ("build", "--quiet", "--network", "host", "--format", "docker")
# pip's settings that say where packages come from
_SOURCES = ("index-url", "extra-index-url", "find-links", "no-index", "proxy", "trusted-host")
_PORTS = ("SERVER_1_PORT", "SERVER_2_PORT", "BLOB_PORT", "QUEUE_PORT")
_RABBITMQ = """
FROM localhost/debian
RUN apt-get -qq update && apt-get -qq install --no-install-recommends rabbitmq-server
CMD ["rabbitmq-server"]
"""


def said(*words: object, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a command prints; it is an error where it fails."""
    ran = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{words} ended with {ran.returncode}\n{(ran.stdout + ran.stderr)[-8000:]}"
    return ran.stdout


def podman(*words: object) -> str:
    return said(PODMAN, *words)


def build_images(folder: Path) -> None:
    """IMAGE; and Debian's package in place of a registry's image ``rabbitmq:4``, which is out of reach."""
    assert os.geteuid() == 0, "podman has to be run as root here: run scripts/test as root"
    assert (ROOT / ".containers/.installed").is_file(), (
        "podman or its base image is missing: run scripts/test"
    )
    (folder / "Containerfile").write_text(_RABBITMQ)
    podman(*_BUILD, "--tag", "localhost/rabbitmq:4", folder)
    podman(*_BUILD, "--tag", IMAGE, "--build-arg", "BASE=localhost/debian", *_registries(folder), ROOT)


def _registries(folder: Path) -> list[str]:
    """Where pip and npm find packages on this machine, as secrets and mounts of a build."""
    listed = said("pip", "config", "list")
    pip = dict(re.findall(r"^\S+\.([a-z-]+)='(.*)'$", listed, re.MULTILINE))
    npm = json.loads(said("npm", "config", "list", "--json"))
    sources = {name: pip[name] for name in _SOURCES if name in pip}
    registry = {"registry": npm["registry"]}
    mounts = [Path(word.removeprefix("file://")) for value in sources.values() for word in value.split()]
    options = [f"--volume={one.parent if one.name == 'simple' else one}:" for one in mounts if one.exists()]
    options = [f"{option}{option[9:-1]}:ro" for option in dict.fromkeys(options)]
    if certificates := pip.get("cert") or npm.get("cafile"):
        options.append(f"--volume={certificates}:/tmp/ca.crt:ro")
        sources["cert"] = registry["cafile"] = "/tmp/ca.crt"
    for name, start, values in (("pip", "[global]\n", sources), ("npm", "", registry)):
        lines = [f"{key} = {value}\n" for key, value in values.items()]
        (folder / name).write_text(start + "".join(lines))
        options.append(f"--secret=id={name},src={folder / name}")
    return options


class Services:
    """What ``compose.yaml`` describes, published on free ports; its secrets are in the folder.

    They are published on a loopback address of its own: podman forwards what is sent to them by rules of the
    kernel's, which stand a little longer than the ports are taken, and for good where a run was killed. A
    server of another test that listened on such a port of 127.0.0.1 could not be reached.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, f"lq{os.getpid()}{folder.name}".lower().replace("_", "-")
        shutil.copy(ROOT / "compose.yaml", folder)
        said(ROOT / "deploy/secrets", cwd=folder)
        self.host = str(IPv4Address(b"\x7f\1" + secrets.token_bytes(2)))
        with ExitStack() as taken:
            free = [taken.enter_context(socket.create_server((self.host, 0))) for _ in _PORTS]
            self.ports = {name: one.getsockname()[1] for name, one in zip(_PORTS, free, strict=True)}
        addresses = {"LISTEN": self.host, "PUBLIC_HOST": self.host}
        self._env = {name: str(port) for name, port in self.ports.items()} | addresses

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("--profile", "all-in-one", "down", "--volumes", "--timeout", "0")

    def compose(self, *words: str) -> str:
        command = (
            "podman-compose",
            "--podman-path",
            PODMAN,
            "--project-name",
            self.project,
            "--in-pod",
            "false",
        )
        return said(*command, *words, env=self._env, cwd=self.folder)

    def container(self, service: str) -> str:
        return f"{self.project}_{service}_1"

    def root_url(self, server: int = 1) -> str:
        return f"http://{self.host}:{self.ports[f'SERVER_{server}_PORT']}"

    def logs(self, service: str) -> str:
        """Standard output and standard error."""
        return said("sh", "-c", 'exec "$@" 2>&1', "sh", PODMAN, "logs", self.container(service))

    def ready_line(self, service: str) -> dict[str, Any]:
        """The line of JSON on standard output, once the service has begun."""
        [line, *_] = wait_until(
            lambda: re.findall(r'^\{.*"storage": .*\}$', self.logs(service), re.MULTILINE)
        )
        return dict(json.loads(line))

    def is_healthy(self, service: str) -> bool:
        """What the image's HEALTHCHECK finds; podman does not ask by itself where there is no systemd."""
        words = [str(PODMAN), "healthcheck", "run", self.container(service)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
