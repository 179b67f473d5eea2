"""What protects browsers: under which host names the server answers, and which origins can call it."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from .calls import TASK_ID, Queue

FOREIGN = "queue.evil.example:8080"
PAGE = "https://tools.example.com"
URLS = ("/v1/ping", "/v1/task/none", "/events?follow=false", "/metrics", "/azure/embedded/q/messages", "/x")
PATHS = (*URLS, "/ready", f"/v1/task/{TASK_ID}")
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "PUT",
    "Access-Control-Request-Headers": "authorization,x-ms-blob-type",
}


def client(**settings: Any) -> Client:
    return Queue(**settings).http


def get(http: Client, host: str, path: str = "/v1/ping") -> TestResponse:
    return http.get(path, base_url="http://localhost", headers={"Host": host})


def test_a_server_on_loopback_refuses_foreign_host_names_on_every_path() -> None:
    http = client()
    for path, host in product(PATHS, (FOREIGN, "localhost.evil.example")):
        answer = get(http, host, path)
        assert answer.status_code == 421
        if path.startswith("/azure"):
            assert "<Code>MisdirectedRequest</Code>" in answer.text
        else:
            assert answer.get_json()["code"] == "MisdirectedRequest"
        assert f"the host is '{host}': expected an IP address, or one of localhost, queue.test" in answer.text


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"host": "0.0.0.0"}, 200),
        ({"host": "0.0.0.0", "allowed_hosts": ("one.example.com",)}, 421),
        ({"allowed_hosts": ("*",)}, 200),
    ],
)
def test_a_server_elsewhere_or_with_all_hosts_allowed_answers_every_host_name(
    settings: Mapping[str, Any], status: int
) -> None:
    assert get(client(**settings), FOREIGN).status_code == status


ALLOW = "Access-Control-Allow-Origin"


def preflight(http: Client, path: str = "/v1/ping", **changes: str) -> TestResponse:
    return http.options(path, base_url="http://localhost", headers={**PREFLIGHT, **changes})


def test_if_all_origins_are_allowed_any_page_can_call_every_path_and_read_the_answers() -> None:
    http = client(cors_origins=("*",))
    for url in URLS:
        answer = http.get(url, base_url="http://localhost", headers={"Origin": PAGE})
        assert answer.headers[ALLOW] == "*"
        assert answer.headers["Access-Control-Expose-Headers"] == "*", (
            "pages can read headers such as the ETag of an upload"
        )
        answer.close()
        before = preflight(http, url)
        assert (before.status_code, before.data, before.headers[ALLOW]) == (204, b"", "*")
        methods = before.headers["Access-Control-Allow-Methods"].split(",")
        assert {"GET", "PUT", "POST", "DELETE"} <= {*methods}
        assert before.headers["Access-Control-Allow-Headers"] == "authorization,x-ms-blob-type"
        assert before.headers["Access-Control-Max-Age"] == "900"


def test_an_answer_names_the_origin_only_if_it_is_listed() -> None:
    http = client(cors_origins=("https://other.example.com", PAGE))
    assert preflight(http).headers[ALLOW] == PAGE
    answer = http.get("/v1/ping", headers={"Origin": PAGE})
    assert (answer.headers[ALLOW], answer.headers["Vary"]) == (PAGE, "Origin")
    for answer in (http.get("/v1/ping", headers={"Origin": f"{PAGE}.evil.example"}), http.get("/v1/ping")):
        assert ALLOW not in answer.headers
    assert preflight(http, Origin="https://evil.example").status_code == 404
