"""Routes that are compiled once for all applications of a process."""

import re

from click.testing import CliRunner
from flask.cli import cli as flask_command
from werkzeug.test import Client

from legacy_queue.http.app import ENDPOINTS
from legacy_queue.http.flask_app import FlaskApp
from tests.http.calls import Queue, succeeded


def app_of(*paths: str) -> FlaskApp:
    """An application whose answers are the routes that were matched."""
    app = FlaskApp(__name__)
    for path in paths:
        app.add_url_rule(path, path, lambda path=path, **params: f"{path} {params}")
    return app


def test_applications_with_the_same_routes_share_a_compiled_map() -> None:
    first, second = app_of("/a", "/b/<name>"), app_of("/a", "/b/<name>")
    for app in (first, second):
        assert Client(app).get("/b/x").text == "/b/<name> {'name': 'x'}"
    assert first.url_map.compiled is second.url_map.compiled


def test_applications_with_different_routes_have_maps_of_their_own() -> None:
    first, second = app_of("/a/<x>"), app_of("/a/<y>")
    assert Client(first).get("/a/1").text == "/a/<x> {'x': '1'}"
    assert Client(second).get("/a/1").text == "/a/<y> {'y': '1'}"
    assert Client(second).get("/b").status_code == 404


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
