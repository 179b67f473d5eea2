"""https with a local certificate authority, and a worker that trusts only this authority."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from .http_queue import Queue
from .processes import LONG, serve, work

pytestmark = pytest.mark.processes


def test_a_worker_polls_claims_uploads_and_reports_over_https_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(tmp_path / "server", "--tls", "auto") as server:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(server.line["ca"]["certificate"]))
        queue = Queue(server)
        task_id = queue.create(workerType="cycle", payload={"command": ["echo", "hello"]})
        urls = queue.poll_urls(workerType="cycle")
        signed = [urlsplit(url) for pair in urls for url in pair.values()]
        assert {url.scheme for url in signed} == {"https"}
        assert {parse_qs(url.query)["spr"][0] for url in signed} == {"https"}
        with work(tmp_path, server, "cycle", "--max-tasks", "1") as worker:
            assert worker.wait() == 0
        assert '"poll-urls"' in worker.errors
        assert queue.runs(task_id) == [("completed", "completed")]
        log = requests.get(f"{server.base_url}/task/{task_id}/artifacts/public/logs/live.log", timeout=LONG)
        assert log.text == "hello\n"
        assert {urlsplit(answer.url).scheme for answer in [*log.history, log]} == {"https"}
