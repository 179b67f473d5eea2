"""The identity of a request: signed by the real clients, or by this code where they never would."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import mohawk
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
from tests.clients.javascript import javascript
from tests.clients.python import taskcluster

NOW = datetime(2018, 3, 4, 5, 6, 7, tzinfo=UTC)
HOUR = timedelta(hours=1)
MS_NOW = int(NOW.timestamp() * 1000)
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
    credentials: Client | TemporaryCredentials = WORKER, ext: str | None = None, now: datetime = NOW
) -> SignedRequest:
    unsigned = SignedRequest("POST", "/v1/task/T/runs/0/claim", "localhost", 8080)
    header = hawk.sign_header(
        unsigned, credentials.client_id, credentials.access_token, now, "abcdef", ext or ""
    )
    return replace(unsigned, authorization=header)


def temporary(
    issuer: Client = QUEUE, name: str | None = "task-client/T", scopes: tuple[str, ...] = ("a", "x:b*")
) -> TemporaryCredentials:
    return create_temporary_credentials(issuer, name, scopes, NOW, NOW + HOUR, SEED)


def identify(signed: SignedRequest, now: datetime = NOW) -> Identity:
    identity = AUTHENTICATOR.authenticate(signed, now)
    assert identity is not None
    return identity


def refused(signed: SignedRequest, now: datetime = NOW) -> None:
    with pytest.raises(AuthenticationFailed) as error:
        AUTHENTICATOR.authenticate(signed, now)
    assert str(error.value) == str(AuthenticationFailed(""))
    assert error.value.details == {}


def test_a_request_without_credentials_has_no_identity() -> None:
    assert AUTHENTICATOR.authenticate(SignedRequest("GET", "/v1/ping", "localhost", 80), NOW) is None


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
    refused(request(made, ext_of(made), later), later)
    assert identify(request(LEAVING, None, later - HOUR / 60), later - HOUR / 60).expires == LEAVING.expires


def test_temporary_credentials_cannot_issue_temporary_credentials() -> None:
    first = temporary(name="task-client/T", scopes=("*",))
    issuer = Client(first.client_id, first.access_token, ("*",))
    for name in (None, "another"):
        made = temporary(issuer, name)
        refused(request(made, ext_of(made)))


def test_authorized_scopes_limit_a_request_and_are_expanded() -> None:
    scopes = ["x:1", "assume:worker-type:p/w*"]
    identity = identify(request(replace(QUEUE, scopes=()), ext_of(authorizedScopes=scopes)))
    assert identity.scopes == ROLES.expand(scopes)
    assert identify(request(ext=ext_of(authorizedScopes=[]))).scopes == ()
    assert identify(request(ext=ext_of(authorizedScopes=["queue:claim-task"]))).scopes == (
        "queue:claim-task",
    )
    made = temporary()
    assert identify(request(made, ext_of(made, authorizedScopes=["x:bc"]))).scopes == ("x:bc",)


def test_authorized_scopes_beyond_the_clients_scopes_are_refused() -> None:
    made = temporary()
    refused(request(made, ext_of(made, authorizedScopes=["x:b*", "y"])))
    refused(request(made, ext_of(made, authorizedScopes=["x:*"])))
    refused(request(ext=ext_of(authorizedScopes=["*"])))


@pytest.mark.parametrize("text", ["{}", '{"certificate": null, "authorizedScopes": null}', '{"other": 1}'])
def test_an_ext_without_certificate_and_scopes_changes_nothing(text: str) -> None:
    assert identify(request(ext=base64.b64encode(text.encode()).decode())) == identify(request())


def test_an_ext_is_read_in_either_base64_alphabet_with_or_without_padding() -> None:
    scopes = ["x:>>>???", "x:~~~~"]
    standard = ext_of(authorizedScopes=scopes)
    assert {"+", "/", "="} & set(standard)
    urlsafe = standard.replace("+", "-").replace("/", "_")
    for form in (standard, urlsafe, standard.rstrip("="), urlsafe.rstrip("=")):
        assert identify(request(ext=form)).scopes == tuple(scopes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "1",
        '"x"',
        "{",
        "{}x",
        "[" * 40_000,
        '{"certificate": "{}"}',
        '{"certificate": {}}',
        '{"certificate": []}',
        '{"certificate": false}',
        '{"authorizedScopes": "x:1"}',
        '{"authorizedScopes": {}}',
        '{"authorizedScopes": [1]}',
        '{"authorizedScopes": ["x:\\u00e9"]}',
        '{"authorizedScopes": ["x:\\ud800"]}',
        '{"certificate": {"start": ' + "9" * 5000 + "}}",
    ],
)
def test_a_malformed_ext_is_refused(text: str) -> None:
    refused(request(ext=base64.b64encode(text.encode()).decode() or "="))


@pytest.mark.parametrize("ext", ["!", "e30 ", "e", "/w==", "e30=e30="])
def test_an_ext_that_is_not_base64_of_text_is_refused(ext: str) -> None:
    refused(request(ext=ext))


def javascript_options(credentials: Client | TemporaryCredentials, **options: Any) -> dict[str, Any]:
    certificate = getattr(credentials, "certificate", None)
    return options | {
        "credentials": {
            "clientId": credentials.client_id,
            "accessToken": credentials.access_token,
            **({"certificate": certificate} if certificate else {}),
        }
    }


def on_the_wire(sent: dict[str, Any]) -> SignedRequest:
    headers = sent["headers"]
    return SignedRequest(
        sent["method"],
        sent["url"],
        "127.0.0.1",
        sent["port"],
        headers["authorization"],
        headers.get("content-type"),
        sent["body"].encode(),
    )


@pytest.mark.parametrize("version", ["4", "11"])
def test_a_request_of_the_javascript_client_is_authenticated(version: str) -> None:
    artifact = ["T", "0", "public/a b/50%.log", {"storageType": "error"}]
    narrow = {"authorizedScopes": ["x:bc"]}
    for call, args, options, scopes in (
        ("createArtifact", artifact, {}, ("a", "x:b*")),
        ("reclaimTask", ["T", "0"], narrow, ("x:bc",)),
        ("task", ["T"], {}, ("a", "x:b*")),
    ):
        sent = javascript(
            "request",
            client=version,
            now=MS_NOW,
            options=javascript_options(temporary(), **options),
            call=call,
            args=args,
        )
        assert identify(on_the_wire(sent)).scopes == scopes


@pytest.mark.parametrize(
    ("version", "base"), [("4", {"baseUrl": "http://q:80/v1"}), ("11", {"rootUrl": "http://q"})]
)
def test_a_signed_url_of_the_javascript_client_is_authenticated(version: str, base: dict[str, str]) -> None:
    url = javascript(
        "signedUrl",
        client=version,
        now=MS_NOW,
        options=javascript_options(temporary(), **base),
        call="getArtifact",
        args=["T", "0", "private/a b.log"],
    )
    target = url.partition("//q")[2].removeprefix(":80")
    signed = SignedRequest("GET", target, "q", 80)
    assert identify(signed).client_id == "task-client/T"
    refused(replace(signed, target=target.replace("a%20b", "a%20c")))
    refused(signed, NOW + timedelta(minutes=15))


def python_queue(credentials: Client | TemporaryCredentials, **options: Any) -> Any:
    keys = javascript_options(credentials)["credentials"]
    return taskcluster.Queue({"baseUrl": "http://q:8080/v1", "credentials": keys, **options})


@pytest.mark.parametrize(("options", "scopes"), [({}, ("a", "x:b*")), ({"authorizedScopes": ["a"]}, ("a",))])
def test_a_request_of_the_python_client_is_authenticated(
    options: dict[str, Any], scopes: tuple[str, ...]
) -> None:
    made = temporary()
    header = mohawk.Sender(  # as the client calls it, but for the clock
        {"id": made.client_id, "key": made.access_token, "algorithm": "sha256"},
        "http://q:8080/v1/task/T/runs/0/reclaim",
        "post",
        content="",
        content_type="",
        ext=python_queue(made, **options).makeHawkExt(),
        _timestamp=MS_NOW // 1000,
    ).request_header
    signed = SignedRequest("POST", "/v1/task/T/runs/0/reclaim", "q", 8080, header, "application/octet-stream")
    assert identify(signed) == Identity("task-client/T", scopes, NOW + HOUR, "queue")


def test_a_signed_url_of_the_python_client_is_authenticated() -> None:
    queue = python_queue(WORKER, authorizedScopes=["x:1"])
    url = queue.buildSignedUrl("getArtifact", "T", "0", "private/a b.log", expiration=600)
    signed = SignedRequest("GET", url.partition(":8080")[2], "q", 8080)
    ends = datetime.fromtimestamp(
        int(base64.b64decode(url.partition("bewit=")[2] + "==").split(b"\\")[1]), UTC
    )
    assert identify(signed, ends - timedelta(seconds=1)).scopes == ("x:1",)
    refused(signed, ends)


def reason(signed: SignedRequest, now: datetime = NOW) -> tuple[str, str]:
    """Why the request is refused, and the clientId that it names: only for the log."""
    with pytest.raises(AuthenticationFailed) as error:
        AUTHENTICATOR.authenticate(signed, now)
    assert error.value.reason not in str(error.value)
    return error.value.reason, error.value.client_id


def with_certificate(made: TemporaryCredentials, **changes: Any) -> SignedRequest:
    return request(made, ext_of(certificate=json.loads(made.certificate) | changes))


def test_a_refusal_has_a_reason_and_a_client_id_for_the_log() -> None:
    made, late = temporary(), NOW + timedelta(minutes=16)
    wide, worker = temporary(WORKER, None, ("y",)), replace(WORKER, access_token="another")
    named = temporary(WORKER, "task-client/T", ("x:y",))
    begins = create_temporary_credentials(QUEUE, None, (), NOW + HOUR, NOW + 2 * HOUR, SEED)
    for signed, now, expected in [
        (request(Client("unknown", "t", ())), NOW, ("no such client", "unknown")),
        (with_certificate(made, issuer="x"), NOW, ("no such issuer", "task-client/T")),
        (request(ENDED), NOW, ("client expired", "ended")),
        (request(temporary(ENDED), ext_of(temporary(ENDED))), NOW, ("issuer expired", "task-client/T")),
        (request(), late, ("clock off by 960 s (behind)", "worker")),
        (request(now=late), NOW, ("clock off by 960 s (ahead)", "worker")),
        (with_certificate(made), NOW + 2 * HOUR, ("certificate expired", "task-client/T")),
        (with_certificate(begins), NOW, ("certificate not valid yet", "queue")),
        (
            with_certificate(made, seed="x" * 44),
            NOW,
            ("certificate signature does not match", made.client_id),
        ),
        (with_certificate(wide), NOW, ("certificate exceeds its issuer's scopes", "worker")),
        (with_certificate(named), NOW, ("certificate exceeds its issuer's scopes", "task-client/T")),
        (with_certificate(made, issuer=made.client_id), NOW, ("no such issuer", made.client_id)),
        (with_certificate(made, start="x"), NOW, ("malformed certificate", made.client_id)),
        (request(ext="!"), NOW, ("malformed ext", "worker")),
        (request(ext=ext_of(authorizedScopes=[1])), NOW, ("malformed authorizedScopes", "worker")),
        (
            request(ext=ext_of(authorizedScopes=["y"])),
            NOW,
            ("authorizedScopes exceed the credentials' scopes", "worker"),
        ),
    ]:
        assert reason(signed, now) == expected
    why, client_id = reason(request(worker))
    assert "wrong key (MAC)" in why
    assert client_id == "worker"
    assert reason(request(Client("n" * 3000, "t", ()))) == ("no such client", "n" * 255)


def test_a_malformed_signature_has_a_reason_and_no_client_id() -> None:
    signed = request()
    for malformed, expected in [
        (replace(signed, authorization="Bearer token"), "authorization scheme other than Hawk"),
        (replace(signed, authorization='Hawk id="worker'), "malformed header"),
        (replace(signed, authorization='Hawk id="worker"'), "header with fields missing or unknown"),
        (replace(signed, target="/v1/ping?bewit=e30"), "header and bewit at once"),
        (replace(signed, target="/v1/ping?bewit=e30&bewit=e30"), "more than one bewit"),
        (replace(signed, target="/?bewit=e30", authorization=None), "bewit on a request that is no GET"),
        (SignedRequest("GET", "/?bewit=e30", "localhost", 80), "malformed bewit"),
    ]:
        assert reason(malformed) == (expected, "")


def test_no_repr_shows_a_token() -> None:
    shown = repr(WORKER) + repr(identify(request())) + repr(temporary()) + repr(request())
    assert "token-of" not in shown
