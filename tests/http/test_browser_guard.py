"""Pages in browsers: the host names under which the server answers, and the origins that may call it."""

from collections.abc import Mapping
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from legacy_queue.config import Settings
from legacy_queue.domain.authentication import Client as HawkClient
from legacy_queue.wiring import build

from .calls import NOW, ROOT, ROOT_URL, SECRETS, TASK_ID, Queue, hawk, refused, task_body

FOREIGN = "queue.evil.example:8080"
PAGE = "https://tools.example.com"
LOCAL = (
    "localhost:8080",
    "LOCALHOST",
    "127.0.0.1",
    "127.8.9.10:1",
    "[::1]:8080",
    "queue.test",
    "queue.test.:80",
    "10.0.0.1",
)
PATHS = (
    "/v1/ping",
    "/events",
    "/metrics",
    "/ready",
    f"/v1/task/{TASK_ID}",
    "/azure/embedded/q/messages",
    "/x",
)
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "PUT",
    "Access-Control-Request-Headers": "authorization,x-ms-blob-type",
}


def client(root_url: str = ROOT_URL, **settings: Any) -> Client:
    root = HawkClient(ROOT.client_id, ROOT.access_token, ("*",))
    given: dict[str, Any] = {"storage": "memory", "signing_secrets": SECRETS, "clients": (root,), **settings}
    return Client(build(Settings(**given), root_url).app)


def get(http: Client, host: str, path: str = "/v1/ping") -> TestResponse:
    return http.get(path, base_url="http://localhost", headers={"Host": host})


@pytest.mark.parametrize("path", PATHS)
def test_on_loopback_a_foreign_host_is_refused_on_every_path(path: str) -> None:
    answer = get(client(), FOREIGN, path)
    assert answer.status_code == 421
    assert answer.get_json()["code"] == "MisdirectedRequest"
    assert answer.get_json()["message"] == (
        f"the host is '{FOREIGN}': addresses, localhost, queue.test are accepted; "
        "the setting allowed-hosts adds others"
    )


def test_under_a_foreign_host_valid_credentials_change_nothing(queue: Queue) -> None:
    path = f"/v1/task/{TASK_ID}"
    signature = hawk(ROOT, "PUT", f"http://{FOREIGN}{path}", NOW)
    headers = {"Host": FOREIGN, "Authorization": signature}
    assert queue.http.put(path, json=task_body(), headers=headers).status_code == 421
    refused(queue.call("task", taskId=TASK_ID), 404, "ResourceNotFound")


@pytest.mark.parametrize("host", LOCAL)
def test_on_loopback_local_names_and_that_of_the_root_url_are_answered(host: str) -> None:
    assert get(client(), host).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1.evil", "x@localhost"]
)
def test_names_that_only_look_local_are_refused(host: str) -> None:
    assert get(client(), host).status_code == 421


def test_a_request_without_host_is_answered() -> None:
    assert client().get("/v1/ping", environ_overrides={"HTTP_HOST": ""}).status_code == 200


def test_the_hosts_of_public_urls_and_tls_names_are_answered() -> None:
    http = client(
        "https://queue.taskcluster.net",
        public_queue_url="https://poll.example.com/x",
        public_blob_url="http://blob.example.com:81",
        tls="auto",
        tls_name=("purge-cache.taskcluster.net",),
    )
    names = (
        "queue.taskcluster.net",
        "poll.example.com",
        "blob.example.com:81",
        "purge-cache.taskcluster.net",
    )
    for host in names:
        assert get(http, host).status_code == 200
    assert get(http, FOREIGN).status_code == 421


def test_configured_hosts_are_answered_beside_the_known() -> None:
    http = client(allowed_hosts=("one.example.com", "*.two.example.com"))
    for host in ("one.example.com:8080", "a.two.example.com", "b.a.two.example.com", *LOCAL):
        assert get(http, host).status_code == 200
    for host in ("two.example.com", "a.one.example.com", FOREIGN):
        assert get(http, host).status_code == 421


def test_the_hosts_of_legacy_stubs_are_answered() -> None:
    http = client("https://queue.taskcluster.net", legacy_stubs=True)
    for service in ("queue", "auth", "purge-cache"):
        assert get(http, f"{service}.taskcluster.net").status_code == 200
    assert get(http, "hooks.taskcluster.net").status_code == 421


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"host": "0.0.0.0"}, 200),
        ({"host": "0.0.0.0", "allowed_hosts": ("one.example.com",)}, 421),
        ({"allowed_hosts": ("*",)}, 200),
    ],
)
def test_every_host_is_answered_elsewhere_than_on_loopback_or_if_all_are_allowed(
    settings: Mapping[str, Any], status: int
) -> None:
    assert get(client(**settings), FOREIGN).status_code == status


ALLOW = "Access-Control-Allow-Origin"
URLS = ("/v1/ping", "/v1/task/none", "/events?follow=false", "/metrics", "/azure/embedded/q/messages", "/x")


def preflight(http: Client, path: str = "/v1/ping", **changes: str) -> TestResponse:
    return http.options(path, base_url="http://localhost", headers={**PREFLIGHT, **changes})


@pytest.mark.parametrize("url", URLS)
def test_any_page_may_read_answers_and_errors_of_every_path_if_all_origins_are_allowed(url: str) -> None:
    http = client(cors_origins=("*",))
    answer = http.get(url, base_url="http://localhost", headers={"Origin": PAGE})
    assert answer.headers[ALLOW] == "*"
    assert answer.headers["Access-Control-Expose-Headers"] == "*", "such as the ETag of an upload"


@pytest.mark.parametrize("url", URLS)
def test_a_preflight_grants_every_method_and_the_headers_that_are_asked_for(url: str) -> None:
    answer = preflight(client(cors_origins=("*",)), url)
    assert (answer.status_code, answer.get_data()) == (204, b"")
    assert answer.headers[ALLOW] == "*"
    assert {"GET", "PUT", "POST", "DELETE"} <= {*answer.headers["Access-Control-Allow-Methods"].split(",")}
    assert answer.headers["Access-Control-Allow-Headers"] == "authorization,x-ms-blob-type"
    assert answer.headers["Access-Control-Max-Age"] == "900"


def test_a_listed_origin_is_named_in_the_answer_and_no_other_is() -> None:
    http = client(cors_origins=("https://other.example.com", PAGE))
    assert preflight(http).headers[ALLOW] == PAGE
    answer = http.get("/v1/ping", headers={"Origin": PAGE})
    assert (answer.headers[ALLOW], answer.headers["Vary"]) == (PAGE, "Origin")
    for answer in (http.get("/v1/ping", headers={"Origin": f"{PAGE}.evil.example"}), http.get("/v1/ping")):
        assert ALLOW not in answer.headers
    assert preflight(http, Origin="https://evil.example").status_code == 404


def test_without_allowed_origins_no_answer_may_be_read() -> None:
    http = client(cors_origins=("none",))
    refused = preflight(http)
    assert refused.status_code == 404
    for answer in (refused, http.get("/v1/ping", headers={"Origin": PAGE})):
        assert not [name for name, _ in answer.headers if name.startswith("Access-Control")]


def test_an_options_request_that_is_no_preflight_is_answered_as_before() -> None:
    answer = client(cors_origins=("*",)).options("/v1/ping", headers={"Origin": PAGE})
    assert (answer.status_code, answer.headers[ALLOW]) == (404, "*")


@pytest.mark.parametrize(
    ("settings", "origins"),
    [
        ({"host": "0.0.0.0"}, ("*",)),
        ({"public_url": "https://queue.example.com"}, ("*",)),
        ({}, ()),
        ({"host": "0.0.0.0", "development": True}, ()),
        ({"public_url": "https://queue.example.com", "development_client": "development"}, ()),
        ({"host": "0.0.0.0", "cors_origins": ("none",)}, ()),
        ({"development_client": "development", "cors_origins": (PAGE,)}, (PAGE,)),
    ],
)
def test_by_default_every_origin_may_call_a_server_for_others_without_a_development_client(
    settings: Mapping[str, Any], origins: tuple[str, ...]
) -> None:
    assert Settings(**settings).origins == origins
