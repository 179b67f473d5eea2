"""Temporary credentials, compared with those that taskcluster (PyPI) and taskcluster-client (npm) make."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from legacy_queue.domain.authentication import (
    Certificate,
    Client,
    TemporaryCredentials,
    create_temporary_credentials,
)
from legacy_queue.domain.errors import AuthenticationFailed
from tests.clients.javascript import javascript
from tests.clients.python import taskcluster
from tests.domain.sample_tasks import DAY, HOUR, MINUTE, MS

ISSUER = Client("queue", "the-access-token-of-the-issuer", ("*",))
START = datetime(2018, 3, 4, 5, 6, 7, tzinfo=UTC)
EXPIRY = START + HOUR
SEED = "Ftd3l2lESxuMdTxXNARMUQcMdMPvE2QJaauYyPNqULnA"
SCOPES = ("queue:claim-task:T/0", "assume:x*", "with spaces ~")
NAMED = "task-client/T/0/on/wg/wid/until/1520143567"
EACH = pytest.mark.parametrize(("name", "scopes"), [(None, SCOPES), (NAMED, SCOPES), (NAMED, ()), (None, ())])


def token(
    credentials: TemporaryCredentials,
    now: datetime = START,
    held: tuple[str, ...] = ("*",),
    **changes: Any,
) -> str:
    wire = json.loads(credentials.certificate) | changes
    return Certificate.from_wire(wire).access_token(credentials.client_id, ISSUER, held, now)


def ours(name: str | None = None, scopes: tuple[str, ...] = SCOPES, **changes: Any) -> TemporaryCredentials:
    times: dict[str, Any] = {"start": START, "expiry": EXPIRY, "seed": SEED} | changes
    return create_temporary_credentials(ISSUER, name, scopes, **times)


def are_as_ours(theirs: Any, name: str | None, scopes: tuple[str, ...]) -> bool:
    """Whether this code accepts the credentials and, from the same seed, makes equal ones."""
    made = TemporaryCredentials(theirs["clientId"], theirs["accessToken"], theirs["certificate"])
    assert token(made) == made.access_token
    wire = json.loads(made.certificate)
    same = ours(name, scopes, seed=wire["seed"])
    assert (same.client_id, same.access_token) == (made.client_id, made.access_token)
    return bool(json.loads(same.certificate) == wire)


@EACH
def test_credentials_of_the_python_client_are_accepted_and_equal_to_ours(
    name: str | None, scopes: tuple[str, ...]
) -> None:
    theirs = taskcluster.client.createTemporaryCredentials(
        ISSUER.client_id, ISSUER.access_token, START, EXPIRY, list(scopes), name
    )
    assert are_as_ours({**theirs, "accessToken": theirs["accessToken"].decode()}, name, scopes)


@pytest.mark.processes
@pytest.mark.parametrize("client", ["4", "11"])
@EACH
def test_credentials_of_the_javascript_client_are_accepted_and_equal_to_ours_if_they_have_scopes(
    client: str, name: str | None, scopes: tuple[str, ...]
) -> None:
    options = {
        "credentials": {"clientId": ISSUER.client_id, "accessToken": ISSUER.access_token},
        "start": START.timestamp() * 1000,
        "expiry": EXPIRY.timestamp() * 1000,
        "scopes": scopes,
        **({"clientId": name} if name else {}),
    }
    theirs = javascript("certificate", client=client, options=options)
    # If there are no scopes, the text that JavaScript signs ends in a newline. In Python and here it does
    # not.
    assert are_as_ours(theirs, name, scopes) == bool(scopes)


def test_a_certificate_is_valid_with_a_drift_of_five_minutes_and_for_31_days() -> None:
    for now in (START - 5 * MINUTE, EXPIRY + 5 * MINUTE):  # clocks may differ by this much
        assert token(ours(), now)
    assert token(ours(expiry=START + 31 * DAY))
    assert token(ours(), issuer=None) == token(ours(), issuer="") == ours().access_token
    # The issuer may hold its scopes as patterns: those that it grants, and the one for the client's name.
    assert token(ours("a/b"), held=(*SCOPES, "auth:create-client:a/*"))


@pytest.mark.parametrize(
    ("made", "options", "reason"),
    [
        (ours(), {"now": START - 5 * MINUTE - MS}, "not valid yet"),
        (ours(), {"now": EXPIRY + 5 * MINUTE + MS}, "expired"),
        (ours(expiry=START + 31 * DAY + MS), {}, "lasts longer than 31 days"),
        (ours("a/b"), {"held": SCOPES}, "exceeds its issuer's scopes"),
        (ours("a/b"), {"held": (*SCOPES[1:], "auth:create-client:a/*")}, "exceeds its issuer's scopes"),
        (ours(seed=SEED[1:]), {}, "malformed"),
        (replace(ours("named"), client_id="other"), {}, "signature does not match"),
        (ours("named"), {"issuer": None}, "signature does not match"),
        (ours(), {"issuer": "another"}, "signature does not match"),
        (ours(), {"scopes": [*SCOPES, "*"]}, "signature does not match"),
        (ours(), {"start": 1520139966999}, "signature does not match"),
        (ours(), {"expiry": 1520143567001}, "signature does not match"),
        (ours(), {"expiry": 10**4000}, "signature does not match"),
        (ours(), {"seed": SEED[:-1] + "B"}, "signature does not match"),
        (ours(), {"scopes": "*"}, "malformed"),
        (ours(), {"scopes": ["é"]}, "malformed"),
        (ours(), {"start": 1520139967000.0}, "malformed"),
        (ours(), {"signature": "\ud800"}, "malformed"),
    ],
)
def test_an_invalid_certificate_is_refused(
    made: TemporaryCredentials, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AuthenticationFailed) as error:
        token(made, **options)
    assert reason in error.value.reason


def test_a_named_certificate_for_its_own_issuer_is_refused() -> None:
    certificate = replace(Certificate.from_wire(json.loads(ours().certificate)), issuer=ISSUER.client_id)
    with pytest.raises(AuthenticationFailed):
        certificate.signed_by(ISSUER, "queue").access_token("queue", ISSUER, ("*",), START)


def test_no_repr_shows_a_token_or_a_certificate() -> None:
    certificate = Certificate.from_wire(json.loads(ours().certificate))
    shown = repr(ISSUER) + repr(ours()) + repr(certificate)
    for secret in (ISSUER.access_token, ours().access_token, SEED, certificate.signature):
        assert secret not in shown
