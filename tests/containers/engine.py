"""podman, and the image that it builds from this tree, on a base made from Debian's packages.

No image from a registry is used. The images that ``compose.yaml`` names have Debian's RabbitMQ, and the
Azurite of ``azurite/``, instead of the published ones.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self

import yaml

from tests.process_guard import MARK
from tests.system.processes import LONG, output_of, wait_until

ROOT = Path(__file__).parents[2]
PODMAN = Path(__file__).parent / "podman"
IMAGE = "localhost/legacy-queue"
_SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
LABELS = {"VERSION": "0.0.1", "REVISION": "0123abc", "SOURCE": "https://example.com/legacy-queue"}
# pip's settings for package sources
_SOURCES = ("index-url", "extra-index-url", "find-links", "no-index", "proxy", "trusted-host")
_PORTS = ("SERVER_1_PORT", "SERVER_2_PORT", "BLOB_PORT", "QUEUE_PORT")
# has the name of the published image. ``Services`` mounts this machine's Node.js and Azurite into it
_AZURITE = """
FROM localhost/debian
ENV PATH=/opt/azurite/node_modules/.bin:/usr/local/bin:/usr/bin:/bin
"""
# Debian's RabbitMQ, with the same user, writable log folder and volume as the published image
_RABBITMQ = """
FROM localhost/debian
RUN groupadd --system --gid 999 rabbitmq \\
    && useradd --system --uid 999 --gid rabbitmq --home-dir /var/lib/rabbitmq rabbitmq \\
    && apt-get -qq update && apt-get -qq install --no-install-recommends rabbitmq-server \\
    && chmod 1777 /var/log/rabbitmq
ENV HOME=/var/lib/rabbitmq
VOLUME /var/lib/rabbitmq
CMD ["rabbitmq-server"]
"""


def podman(*words: object, timeout: float = 2 * LONG) -> str:
    return output_of(PODMAN, *words, timeout=timeout)


def build(*words: object) -> None:
    podman("build", "--quiet", "--network", "host", "--format", "docker", *words, timeout=600)


def build_images(folder: Path) -> None:
    """Build IMAGE and the images of Azurite and RabbitMQ concurrently, without a registry."""
    assert os.geteuid() == 0, "podman needs root here: run scripts/test as root"
    assert (ROOT / ".containers/.installed").is_file(), (
        "podman or its base image is missing: scripts/install --all makes them, or says why it cannot"
    )
    for name, text in (("rabbitmq", _RABBITMQ), ("azurite", _AZURITE)):
        (folder / name).mkdir()
        (folder / name / "Containerfile").write_text(text)
    arguments = [f"--build-arg={name}={value}" for name, value in LABELS.items()]
    builds = (
        (f"localhost/{_SERVICES['rabbitmq']['image']}", folder / "rabbitmq"),
        (_SERVICES["azurite"]["image"], folder / "azurite"),
        (IMAGE, *arguments, *image_options(folder), ROOT),
    )
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda words: build("--tag", *words), builds))


def image_options(folder: Path) -> list[str]:
    """The options to build the image: its base, and this machine's package sources for pip."""
    listed = output_of("pip", "config", "list")
    pip = dict(re.findall(r"^\S+\.([a-z-]+)='(.*)'$", listed, re.MULTILINE))
    sources = {name: pip[name] for name in _SOURCES if name in pip}
    mounts = [Path(word.removeprefix("file://")) for value in sources.values() for word in value.split()]
    folders = [path.parent if path.name == "simple" else path for path in mounts if path.exists()]
    options = ["--build-arg=BASE=localhost/debian"]
    options += [f"--volume={path}:{path}:ro" for path in dict.fromkeys(folders)]
    if certificates := pip.get("cert"):
        options.append(f"--volume={certificates}:/tmp/ca.crt:ro")
        sources["cert"] = "/tmp/ca.crt"
    lines = [f"{key} = {value}\n" for key, value in sources.items()]
    (folder / "pip").write_text("[global]\n" + "".join(lines))
    options.append(f"--secret=id=pip,src={folder / 'pip'}")
    return options


class Services:
    """The services of ``compose.yaml``, published on free ports. The folder has their secrets.

    They have a loopback address of their own. podman forwards their ports with rules in the kernel. These
    rules stay a little longer than the services, and after a killed run they stay for good. On 127.0.0.1,
    such a rule would redirect connections to a server of another test.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = f"{os.environ[MARK]}-{folder.name}".lower().replace("_", "-")
        shutil.copy(ROOT / "compose.yaml", folder)
        node = Path(shutil.which("node") or "").resolve()
        mounts = [f"{node}:/usr/local/bin/node:ro", f"{ROOT / 'azurite'}:/opt/azurite:ro"]
        added = {"services": {"azurite": {"volumes": mounts}}}
        (folder / "compose.override.yaml").write_text(yaml.safe_dump(added))
        output_of(ROOT / "deploy/secrets", cwd=folder)
        self.host = str(IPv4Address(b"\x7f\1" + secrets.token_bytes(2)))
        with ExitStack() as stack:
            listeners = [stack.enter_context(socket.create_server((self.host, 0))) for _ in _PORTS]
            self.ports = dict(zip(_PORTS, (each.getsockname()[1] for each in listeners), strict=True))
        addresses = {"LISTEN": self.host, "PUBLIC_HOST": self.host}
        self._env = {name: str(port) for name, port in self.ports.items()} | addresses

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("--profile", "all-in-one", "down", "--volumes", "--timeout", "0")

    def compose(self, *words: str) -> str:
        options = ("--podman-path", PODMAN, "--project-name", self.project, "--in-pod", "false")
        return output_of("podman-compose", *options, *words, env=self._env, cwd=self.folder)

    def container(self, service: str) -> str:
        return f"{self.project}_{service}_1"

    def root_url(self, server: int = 1) -> str:
        return f"http://{self.host}:{self.ports[f'SERVER_{server}_PORT']}"

    def logs(self, service: str) -> str:
        """The service's standard output and standard error."""
        return output_of("sh", "-c", 'exec "$@" 2>&1', "sh", PODMAN, "logs", self.container(service))

    def ready_line(self, service: str) -> dict[str, Any]:
        """The JSON line that the service prints when it is ready."""
        line = wait_until(lambda: re.search(r'^\{.*"storage": .*\}$', self.logs(service), re.MULTILINE))
        return dict(json.loads(line[0]))

    def wait_until_healthy(self, service: str) -> None:
        """Run the image's HEALTHCHECK until it succeeds. Without systemd, podman does not run it itself."""
        words = [str(PODMAN), "healthcheck", "run", self.container(service)]
        wait_until(lambda: subprocess.run(words, capture_output=True, check=False).returncode == 0)
