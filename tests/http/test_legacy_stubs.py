"""The endpoints of the services purge-cache and auth that old workers call."""

import json
from dataclasses import replace

import pytest

from legacy_queue.domain.authentication import Client
from tests.http.calls import Credentials, Queue, refused, succeeded, temporary

WORKER = Credentials("a/worker", "the-access-token-of-the-worker")
ROLES = {"worker-type:p/*": ("queue:claim-work:p/w", "assume:everybody"), "everybody": ("public:read",)}
EXPANDED = ["assume:worker-type:p/w", "queue:claim-work:p/w", "assume:everybody", "public:read"]
PURGE = "/purge-cache/p/w?since=2017-01-01T00%3A00%3A00.000Z"


@pytest.fixture(scope="module")
def queue() -> Queue:
    client = Client(WORKER.client_id, WORKER.access_token, ("assume:worker-type:p/w",))
    return Queue(client, roles=ROLES, legacy_stubs=True)


@pytest.mark.parametrize("prefix", ["/v1", "/api/purge-cache/v1"])
def test_the_list_of_purge_requests_is_empty(queue: Queue, prefix: str) -> None:
    for credentials in (WORKER, None):
        answer = succeeded(queue.send("GET", prefix + PURGE, credentials=credentials))
        assert answer.get_json() == {"requests": []}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("prefix", ["/v1", "/api/auth/v1"])
def test_expand_scopes_uses_the_roles_of_the_server(queue: Queue, method: str, prefix: str) -> None:
    body = json.dumps({"scopes": ["assume:worker-type:p/w"]}).encode()
    answer = succeeded(queue.send(method, f"{prefix}/scopes/expand", body, credentials=WORKER))
    assert sorted(answer.get_json()["scopes"]) == sorted(EXPANDED)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_expand_scopes_needs_valid_credentials(queue: Queue, method: str) -> None:
    """Requests with invalid credentials are refused before their body is parsed."""
    forged = replace(WORKER, access_token="another")
    for body in (b'{"scopes": []}', b"no JSON"):
        answer = queue.send(method, "/v1/scopes/expand", body, credentials=None)
        refused(answer, 403, "InsufficientScopes", "lacks valid credentials")
        answer = queue.send(method, "/v1/scopes/expand", body, credentials=forged)
        refused(answer, 401, "AuthenticationFailed")


@pytest.mark.parametrize("prefix", ["/v1", "/api/auth/v1"])
def test_current_scopes_are_the_scopes_of_the_credentials(queue: Queue, prefix: str) -> None:
    def current(credentials: Credentials | None) -> list[str]:
        answer = succeeded(queue.send("GET", f"{prefix}/scopes/current", credentials=credentials))
        return sorted(answer.get_json()["scopes"])

    assert current(WORKER) == sorted(EXPANDED)
    assert current(temporary(WORKER, ["assume:everybody"])) == ["assume:everybody", "public:read"]
    assert current(None) == []
