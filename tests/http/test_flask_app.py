"""Routes that are compiled once for all applications of a process."""

import re

from click.testing import CliRunner
from flask.cli import cli as flask_command

from legacy_queue.http.app import ENDPOINTS
from tests.http.calls import Queue, succeeded


def test_flask_lists_each_route_of_the_api() -> None:
    listed = CliRunner().invoke(flask_command, ["--app", "legacy_queue.wiring:app", "routes"])
    assert listed.exit_code == 0
    routes = re.findall(r"^queue/(\w+) +([A-Z, ]+) +(/v1/\S+)", listed.output, re.MULTILINE)
    assert {(name, method.split(",")[0].strip()) for name, method, _ in routes} == {
        (endpoint.name, endpoint.method) for endpoint in ENDPOINTS if endpoint.name != "finishArtifact"
    }


def test_two_servers_with_different_queue_prefixes_serve_their_own_blobs() -> None:
    for queue in (Queue(queue_prefix="one"), Queue(queue_prefix="other")):
        task_id = queue.running()
        answer = succeeded(queue.artifact(task_id, "public/log", "azure")).get_json()
        assert f"/{queue.settings.queue_prefix}-artifacts/" in answer["putUrl"]
        put = queue.upload(answer["putUrl"], b"a log", x_ms_blob_type="BlockBlob")
        assert put.status_code == 201
