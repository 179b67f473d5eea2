"""Every page under docs/, and README, does what it says: see tests/docs/page.py for how a page is written."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.page import Page, read
from tests.docs.terminal import ROOT, Terminal
from tests.system.processes import Server, serve

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# The blocks that cannot be run here, by their first lines. Each stands below the reason, for the reader.
NOT_RUN = {
    "docs/how-to/artifacts.md": ["python3 -m venv client"],
    "docs/how-to/containers.md": [
        "docker build --file Containerfile --tag legacy-queue .",
        "docker run --name legacy-queue --detach --volume legacy-queue:/data --publish 8080:8080 \\",
        "LISTEN=0.0.0.0 PUBLIC_HOST=my-machine.example.com \\",
        "deploy/secrets",
        "set -a; . secrets/client.env; set +a",
    ],
    "docs/how-to/legacy-workers.md": ["mkdir tasks caches downloads"],
    "docs/how-to/scale-out.md": ["cat > legacy-queue.env <<END"],
    "docs/how-to/tls.md": [
        "sudo iptables -t nat -A PREROUTING -p tcp --dport 443 -j REDIRECT --to-ports 8443"
    ],
    "docs/how-to/in-tests.md": ["npm install taskcluster-client@11.0.0"],
    "docs/how-to/install.md": [
        "python3 -m venv .venv",
        "python3 -m venv legacy-queue",
        "npm install -g azurite",
    ],
    "README.md": ["scripts/test"],
    "docs/how-to/old-client.md": ["python3 -m venv client", "npm install taskcluster-client@11.0.0"],
    "docs/how-to/real-azure.md": [
        "az storage account show-connection-string --resource-group my-group --name myaccount --output tsv",
        "legacy-queue serve --config azure.toml",
        "docker run --detach --publish 127.0.0.1:10000-10002:10000-10002 --volume azurite:/data \\",
    ],
    "docs/how-to/conform.md": [
        "pip install taskcluster==113.2.0",
        "legacy-queue conform --payload generic-worker -- sh start.sh",
    ],
    "docs/how-to/migrate.md": ["pip install taskcluster==113.2.0"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "data").mkdir()  # as up makes it, for the commands that look for the server there
    with serve(folder, "--storage", "memory", "--control") as running:
        yield running


def offered(page: Page, request: pytest.FixtureRequest) -> tuple[dict[str, str], dict[str, int]]:
    """The variables and the ports of the servers that the page needs."""
    env, ports = {}, {}
    if "server" in page.needs:
        running = request.getfixturevalue("server")
        env["LEGACY_QUEUE_DATA_DIR"] = str(running.data_dir)
        ports["8080"] = int(running.root_url.rpartition(":")[2])
    if "rabbitmq" in page.needs:
        env["AMQP_URL"] = request.getfixturevalue("rabbitmq").url
    return env, ports


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_everything_on_the_page_works_in_order(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = read(path)
    if page.steps:
        follow(page, tmp_path, *offered(page, request))


def follow(page: Page, folder: Path, env: Mapping[str, str], ports: dict[str, int]) -> None:
    """Take the steps of the page, in order."""
    terminal = Terminal(folder, env, ports)
    try:
        printed = None
        for step in page.steps:
            printed = terminal.take(step, printed)
    finally:
        terminal.close()


def test_only_the_listed_blocks_are_not_run() -> None:
    assert {name_of(path): page.not_run for path in PAGES if (page := read(path)).not_run} == NOT_RUN
