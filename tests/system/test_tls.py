"""https with a local authority, and clients that trust only this."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from .http_queue import Queue
from .processes import LONG, Server, serve, work

pytestmark = pytest.mark.processes

NAME = "queue.taskcluster.net"
OPTIONS = ("--tls", "auto", "--tls-name", NAME, "--claim-work-wait", "5s")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("tls"), *OPTIONS) as server:
        yield server


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """The clients and processes of a test trust the server's authority, and no other."""
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.setenv(name, str(server.line["ca"]["certificate"]))


@pytest.mark.usefixtures("trusted")
def test_a_worker_polls_claims_uploads_and_reports_over_https_only(server: Server, tmp_path: Path) -> None:
    queue = Queue(server)
    task_id = queue.create(workerType="cycle", payload={"command": ["echo", "hello"]})
    urls = queue.poll_urls(workerType="cycle")
    signed = [urlsplit(url) for pair in urls for url in pair.values()]
    assert {url.scheme for url in signed} == {"https"}
    assert {parse_qs(url.query)["spr"][0] for url in signed} == {"https"}
    with work(tmp_path, server, "cycle", "--max-tasks", "1") as worker:
        assert worker.wait() == 0
    assert worker.steps[0] == "poll-urls"
    assert queue.runs(task_id) == [("completed", "completed")]
    log = requests.get(f"{server.base_url}/task/{task_id}/artifacts/public/logs/live.log", timeout=LONG)
    assert log.text == "hello\n"
    assert {urlsplit(answer.url).scheme for answer in [*log.history, log]} == {"https"}
