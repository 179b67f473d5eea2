"""README and every page under docs/ do what they say. tests/docs/page.py explains how pages are written."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.page import read
from tests.docs.terminal import ROOT, Terminal
from tests.system.processes import Server, serve

pytestmark = pytest.mark.processes

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "data").mkdir()  # the folder that up would make, where commands look for the server
    with serve(folder, "--storage", "memory", "--control") as running:
        yield running


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_page_work_and_print_what_it_says(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page, env, ports = read(path), {}, {}
    if "server" in page.needs:
        running = request.getfixturevalue("server")
        env["LEGACY_QUEUE_DATA_DIR"] = str(running.data_dir)
        ports["8080"] = int(running.root_url.rpartition(":")[2])
    if "rabbitmq" in page.needs:
        env["AMQP_URL"] = request.getfixturevalue("rabbitmq").url
    if page.steps:
        with closing(Terminal(tmp_path, env, ports)) as terminal:
            printed = None
            for step in page.steps:
                printed = terminal.take(step, printed)


def test_readme_and_docs_have_at_most_22_000_words() -> None:
    assert sum(len(path.read_text().split()) for path in PAGES) <= 22_000
