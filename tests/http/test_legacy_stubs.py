"""The endpoints of purge-cache and auth that old workers call."""

import json

import pytest

from legacy_queue.domain.authentication import Client
from tests.http.calls import NOW, ROOT_URL, Credentials, Queue, hawk, refused, succeeded, temporary

WORKER = Credentials("a/worker", "the-access-token-of-the-worker")
ROLES = {"worker-type:p/*": ("queue:claim-work:p/w", "assume:everybody"), "everybody": ("public:read",)}
EXPANDED = ["assume:worker-type:p/w", "queue:claim-work:p/w", "assume:everybody", "public:read"]
PURGE = "/purge-cache/p/w?since=2017-01-01T00%3A00%3A00.000Z"
TARGETS = [
    *[("GET", f"{prefix}{PURGE}") for prefix in ("/v1", "/api/purge-cache/v1")],
    *[
        (method, f"{prefix}/scopes/{name}")
        for method, name in (("GET", "expand"), ("POST", "expand"), ("GET", "current"))
        for prefix in ("/v1", "/api/auth/v1")
    ],
]


@pytest.fixture(scope="module")
def queue() -> Queue:
    client = Client(WORKER.client_id, WORKER.access_token, ("assume:worker-type:p/w",))
    return Queue(client, roles=ROLES, legacy_stubs=True)


@pytest.mark.parametrize(("method", "target"), TARGETS)
def test_without_the_option_each_stub_is_a_404_that_names_the_option(method: str, target: str) -> None:
    answer = Queue().send(method, target, b'{"scopes": []}')
    assert "--legacy-stubs" in refused(answer, 404, "ResourceNotFound")


@pytest.mark.parametrize("prefix", ["/v1", "/api/purge-cache/v1"])
def test_the_list_of_purge_requests_is_empty(queue: Queue, prefix: str) -> None:
    for credentials in (WORKER, None):
        answer = succeeded(queue.send("GET", prefix + PURGE, credentials=credentials))
        assert answer.get_json() == {"requests": []}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("prefix", ["/v1", "/api/auth/v1"])
def test_scopes_are_expanded_by_the_roles_of_the_server(queue: Queue, method: str, prefix: str) -> None:
    body = json.dumps({"scopes": ["assume:worker-type:p/w"]}).encode()
    answer = succeeded(queue.send(method, f"{prefix}/scopes/expand", body, credentials=WORKER))
    assert sorted(answer.get_json()["scopes"]) == sorted(EXPANDED)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_scopes_are_expanded_only_for_valid_clients_and_only_lists(queue: Queue, method: str) -> None:
    stranger = Credentials("a-stranger", "the-access-token-of-a-stranger")
    asked = b'{"scopes": ["a"]}'
    for sent, credentials, status in (
        (asked, None, 403),
        (asked, stranger, 401),
        (b'{"scopes": "a"}', WORKER, 400),
    ):
        target = "/api/auth/v1/scopes/expand"
        header = {"Authorization": hawk(credentials, method, ROOT_URL + target, NOW)} if credentials else {}
        answer = queue.http.open(
            target,
            base_url=ROOT_URL,
            method=method,
            data=sent,
            content_type="application/json",
            headers=header,
            environ_overrides={"RAW_URI": target, "REQUEST_URI": target},
        )
        assert answer.status_code == status
        assert ("lacks valid credentials" in answer.text) == (status == 403)
        assert answer.get_json()["requestInfo"]["method"].startswith("expandScopes")


@pytest.mark.parametrize("prefix", ["/v1", "/api/auth/v1"])
def test_current_scopes_are_those_of_the_credentials(queue: Queue, prefix: str) -> None:
    def current(credentials: Credentials | None) -> list[str]:
        answer = succeeded(queue.send("GET", f"{prefix}/scopes/current", credentials=credentials))
        return sorted(answer.get_json()["scopes"])

    assert current(WORKER) == sorted(EXPANDED)
    assert current(temporary(WORKER, ["assume:everybody"])) == ["assume:everybody", "public:read"]
    assert current(None) == []
