"""Who sent a request. tests/system shows the same with requests of real clients."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from legacy_queue.domain import hawk
from legacy_queue.domain.authentication import (
    Authenticator,
    Client,
    Identity,
    TemporaryCredentials,
    create_temporary_credentials,
)
from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.hawk import SignedRequest
from legacy_queue.domain.scopes import Roles
from tests.domain.sample_tasks import HOUR, MINUTE

NOW = datetime(2018, 3, 4, 5, 6, 7, tzinfo=UTC)
ROLES = Roles({"worker-type:p/*": ["queue:claim-task", "queue:poll-task-urls"], "admin": ["*"]})
WORKER = Client("worker", "token-of-the-worker", ("assume:worker-type:p/w", "assume:worker-id:*", "x:*"))
QUEUE = Client("queue", "token-of-the-queue", ("assume:admin",))
ENDED = Client("ended", "token-of-an-ended-client", ("*",), NOW)
LEAVING = Client("leaving", "token-of-a-leaving-client", ("*",), NOW + HOUR / 2)
AUTHENTICATOR = Authenticator({client.client_id: client for client in (WORKER, QUEUE, ENDED, LEAVING)}, ROLES)
SEED = "Ftd3l2lESxuMdTxXNARMUQcMdMPvE2QJaauYyPNqULnA"


def ext_of(credentials: TemporaryCredentials | None = None, **extension: Any) -> str:
    if credentials:
        extension["certificate"] = json.loads(credentials.certificate)
    return base64.b64encode(json.dumps(extension).encode()).decode()


def request(
    credentials: Client | TemporaryCredentials = WORKER, ext: str = "", now: datetime = NOW
) -> SignedRequest:
    unsigned = SignedRequest("POST", "/v1/task/T/runs/0/claim", "localhost", 8080)
    client_id, token = credentials.client_id, credentials.access_token
    return replace(unsigned, authorization=hawk.sign_header(unsigned, client_id, token, now, "abcdef", ext))


def temporary(
    issuer: Client = QUEUE, name: str | None = "task-client/T", scopes: tuple[str, ...] = ("a", "x:b*")
) -> TemporaryCredentials:
    return create_temporary_credentials(issuer, name, scopes, NOW, NOW + HOUR, SEED)


def identify(signed: SignedRequest, now: datetime = NOW) -> Identity:
    identity = AUTHENTICATOR.authenticate(signed, now)
    assert identity is not None
    return identity


def reason(signed: SignedRequest, now: datetime = NOW) -> tuple[str, str]:
    """Why the request is refused, and the clientId that it names. Only the log gets them."""
    with pytest.raises(AuthenticationFailed) as error:
        AUTHENTICATOR.authenticate(signed, now)
    why = error.value.reason
    hidden = str(AuthenticationFailed(""))
    assert str(error.value) == (f"Authentication failed: {why}" if error.value.is_of_form else hidden)
    assert error.value.details == {}
    return why, error.value.client_id


def test_a_permanent_client_has_its_scopes_expanded_through_roles() -> None:
    identity = identify(request())
    assert identity == Identity("worker", ROLES.expand(WORKER.scopes))
    assert {"x:*", "queue:claim-task", "assume:worker-type:p/w"} <= set(identity.scopes)
    assert identity.log_name == "worker"


def test_temporary_credentials_have_their_own_scopes_and_expiry() -> None:
    identity = identify(request(temporary(), ext_of(temporary())))
    assert identity == Identity("task-client/T", ("a", "x:b*"), NOW + HOUR, "queue")
    assert identity.log_name == "task-client/T (temporary, issued by queue)"


def test_unnamed_temporary_credentials_have_the_client_id_of_their_issuer() -> None:
    made = temporary(WORKER, None, ("queue:claim-task", "assume:worker-type:p/w"))
    identity = identify(request(made, ext_of(made)))
    assert (identity.client_id, identity.issuer) == ("worker", "worker")
    assert set(identity.scopes) == {"queue:claim-task", "assume:worker-type:p/w", "queue:poll-task-urls"}


def test_temporary_credentials_expire_with_their_issuer() -> None:
    made = temporary(LEAVING)
    assert identify(request(made, ext_of(made))).expires == LEAVING.expires
    later = NOW + HOUR / 2
    reason(request(made, ext_of(made), later), later)


def test_temporary_credentials_cannot_issue_temporary_credentials() -> None:
    first = temporary(name="task-client/T", scopes=("*",))
    issuer = Client(first.client_id, first.access_token, ("*",))
    for name in (None, "another"):
        made = temporary(issuer, name)
        reason(request(made, ext_of(made)))


def test_authorized_scopes_limit_a_request_and_are_expanded_through_roles() -> None:
    scopes = ["x:1", "assume:worker-type:p/w*"]
    identity = identify(request(replace(QUEUE, scopes=()), ext_of(authorizedScopes=scopes)))
    assert identity.scopes == ROLES.expand(scopes)
    for scopes in ([], ["queue:claim-task"]):
        assert identify(request(ext=ext_of(authorizedScopes=scopes))).scopes == tuple(scopes)
    made = temporary()
    assert identify(request(made, ext_of(made, authorizedScopes=["x:bc"]))).scopes == ("x:bc",)


def test_authorized_scopes_beyond_the_clients_scopes_are_refused() -> None:
    made = temporary()
    reason(request(made, ext_of(made, authorizedScopes=["x:b*", "y"])))
    refusal = ("authorizedScopes exceed the credentials' scopes", "worker")
    assert reason(request(ext=ext_of(authorizedScopes=["x:1", "*"]))) == refusal


@pytest.mark.parametrize(
    "text", ["", "[" * 40_000, '{"certificate": {}}', '{"certificate": {"start": ' + "9" * 5000 + "}}"]
)
def test_a_malformed_ext_is_refused(text: str) -> None:
    reason(request(ext=base64.b64encode(text.encode()).decode() or "="))


def with_certificate(made: TemporaryCredentials, **changes: Any) -> SignedRequest:
    return request(made, ext_of(certificate=json.loads(made.certificate) | changes))


def test_the_log_gets_the_reason_of_a_refusal_and_its_client_id() -> None:
    made, late = temporary(), NOW + 16 * MINUTE
    no_scopes = ("authorizedScopes is not a list of scopes", "worker")
    for signed, now, expected in [
        (request(Client("unknown", "t", ())), NOW, ("no such client", "unknown")),
        (with_certificate(made, issuer="x"), NOW, ("no such issuer", "task-client/T")),
        (request(ENDED), NOW, ("client expired", "ended")),
        (request(temporary(ENDED), ext_of(temporary(ENDED))), NOW, ("issuer expired", "task-client/T")),
        (request(), late, ("clock off by 960 s (behind)", "worker")),
        (request(now=late), NOW, ("clock off by 960 s (ahead)", "worker")),
        (with_certificate(made), NOW + 2 * HOUR, ("certificate expired", "task-client/T")),
        (with_certificate(made, start="x"), NOW, ("the certificate is malformed", made.client_id)),
        (request(ext="!"), NOW, ("ext is not base64 of a JSON object", "worker")),
        *((request(ext=ext_of(authorizedScopes=it)), NOW, no_scopes) for it in ([1], "x:1", ["x:é"])),
    ]:
        assert reason(signed, now) == expected
    why, client_id = reason(request(replace(WORKER, access_token="another")))
    assert "wrong key (MAC)" in why
    assert client_id == "worker"
    assert reason(request(Client("n" * 3000, "t", ()))) == ("no such client", "n" * 255)
