"""Routes that are compiled once for all applications of a process."""

from flask import Flask
from werkzeug.test import Client

from legacy_queue.http.url_map import UrlMap
from tests.http.calls import Queue, succeeded


class App(Flask):
    url_map_class = UrlMap


def app_of(*paths: str) -> App:
    """An application whose answers are the routes that were matched."""
    app = App(__name__)
    for path in paths:
        app.add_url_rule(path, path, lambda path=path, **params: f"{path} {params}")
    return app


def routes_of(app: App) -> UrlMap:
    assert isinstance(app.url_map, UrlMap)
    return app.url_map


def test_applications_with_the_same_routes_share_a_compiled_map() -> None:
    first, second = app_of("/a", "/b/<name>"), app_of("/a", "/b/<name>")
    for app in (first, second):
        assert Client(app).get("/b/x").text == "/b/<name> {'name': 'x'}"
    assert routes_of(first).compiled is routes_of(second).compiled


def test_applications_with_different_routes_have_maps_of_their_own() -> None:
    first, second = app_of("/a/<x>"), app_of("/a/<y>")
    assert Client(first).get("/a/1").text == "/a/<x> {'x': '1'}"
    assert Client(second).get("/a/1").text == "/a/<y> {'y': '1'}"
    assert Client(second).get("/b").status_code == 404


def test_two_servers_with_different_queue_prefixes_serve_their_own_blobs() -> None:
    for queue in (Queue(queue_prefix="one"), Queue(queue_prefix="other")):
        task_id = queue.running()
        answer = succeeded(queue.artifact(task_id, "public/log", "azure")).get_json()
        assert f"/{queue.settings.queue_prefix}-artifacts/" in answer["putUrl"]
        put = queue.upload(answer["putUrl"], b"a log", x_ms_blob_type="BlockBlob")
        assert put.status_code == 201
