"""Who sent a request, with which scopes; and temporary credentials.

A temporary access token is derived from its issuer's token, so the server stores no certificates. No message
and no repr contains a token or a signature. The reason of a refusal is only in the log. Source:
docs/explanation/http-contract.md#authentication, docs/explanation/legacy-clients.md#requests, and
taskcluster-auth's signature validator of 2017.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.hawk import Signature, SignedRequest, decode_base64, read_signature, verify
from legacy_queue.domain.scopes import Roles, covers, is_scope
from legacy_queue.domain.times import MILLISECOND, epoch_milliseconds, from_epoch

MAX_LIFE = timedelta(days=31)
MAX_DRIFT = timedelta(minutes=5)  # allowed at the start and at the end
SEED_LENGTH = 44  # two slugids


@dataclass(frozen=True)
class Client:
    """Permanent credentials that the operator configured. ``scopes`` are not expanded yet."""

    client_id: str
    access_token: str = field(repr=False)
    scopes: tuple[str, ...]
    expires: datetime | None = None

    def mac(self, text: str) -> bytes:
        return hmac.digest(self.access_token.encode(), text.encode(), hashlib.sha256)


@dataclass(frozen=True)
class TemporaryCredentials:
    """The credentials of a claim; ``certificate`` is a JSON string."""

    client_id: str
    access_token: str = field(repr=False)
    certificate: str = field(repr=False)

    def to_wire(self) -> dict[str, str]:
        """``credentials`` of a claim."""
        return {"clientId": self.client_id, "accessToken": self.access_token, "certificate": self.certificate}


@dataclass(frozen=True)
class Certificate:
    """Scopes that an issuer has signed, valid from ``start`` to ``expiry`` (ms since 1970).

    ``issuer`` is set in a named certificate only: one for a clientId other than the issuer's.
    """

    scopes: tuple[str, ...]
    start: int
    expiry: int
    seed: str = field(repr=False)
    issuer: str | None = None
    signature: str = field(default="", repr=False)

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Reads what ``to_json`` writes, with keys in any order. Raises AuthenticationFailed."""
        match wire:
            case {
                "version": 1,
                "scopes": [*scopes],
                "start": int(start),
                "expiry": int(expiry),
                "seed": str(seed),
                "signature": str(signature),
                **others,
            } if (
                len(seed) == SEED_LENGTH
                and is_scope(issuer := others.get("issuer") or "")
                and all(map(is_scope, [*scopes, seed, signature]))
            ):
                return cls(tuple(scopes), start, expiry, seed, issuer or None, signature)
        raise AuthenticationFailed("the certificate is malformed", is_of_form=True)

    def access_token(self, client_id: str, issuer: Client, held: Sequence[str], now: datetime) -> str:
        """Returns the access token for this certificate. Raises AuthenticationFailed if it is not valid now.

        ``held`` are the expanded scopes of the issuer. They must cover the scopes of the certificate and, if
        it is a named certificate, ``auth:create-client:<client_id>``.
        """
        time = epoch_milliseconds(now)
        drift = MAX_DRIFT // MILLISECOND
        # if there are no scopes, JavaScript clients end the signed text with a newline, Python clients do not
        signatures = [
            self._signature(issuer, client_id, end) for end in ([""] if self.scopes else ["", "\n"])
        ]
        is_signed = any(hmac.compare_digest(text.encode(), self.signature.encode()) for text in signatures)
        # an unnamed certificate has the clientId of its issuer, so it needs no scope to make a client
        wanted = [*self.scopes, *([f"auth:create-client:{client_id}"] if self.issuer else [])]
        checks = {
            "certificate names its bearer as issuer": self.issuer != client_id,
            "certificate signature does not match": is_signed,
            "certificate not valid yet": time >= self.start - drift,
            "certificate expired": time <= self.expiry + drift,
            "certificate lasts longer than 31 days": self.expiry - self.start <= MAX_LIFE // MILLISECOND,
            "certificate exceeds its issuer's scopes": covers(held, wanted),
        }
        for reason, is_right in checks.items():
            if not is_right:
                raise AuthenticationFailed(reason)
        return _temporary_token(issuer, self.seed)

    def signed_by(self, issuer: Client, client_id: str) -> "Certificate":
        """Returns the certificate with the issuer's signature, for this clientId."""
        signature = self._signature(issuer, client_id)
        return Certificate(self.scopes, self.start, self.expiry, self.seed, self.issuer, signature)

    def _signature(self, issuer: Client, client_id: str, end: str = "") -> str:
        names = [f"clientId:{client_id}", f"issuer:{self.issuer}"] if self.issuer else []
        times = [f"start:{self.start}", f"expiry:{self.expiry}"]
        text = "\n".join(["version:1", *names, f"seed:{self.seed}", *times, "scopes:", *self.scopes])
        return base64.b64encode(issuer.mac(text + end)).decode()

    def to_json(self) -> str:
        """The inverse of ``from_wire``, as text."""
        wire = {"version": 1, **vars(self)}
        if not self.issuer:
            del wire["issuer"]
        return json.dumps(wire, separators=(",", ":"))


def create_temporary_credentials(
    issuer: Client, client_id: str | None, scopes: Sequence[str], start: datetime, expiry: datetime, seed: str
) -> TemporaryCredentials:
    """Returns credentials with these scopes for this time. Without ``client_id`` they have the issuer's.

    ``seed`` is 44 new random characters. Nothing is checked here: whether the issuer has these scopes, and
    whether the time is at most 31 days, is checked when somebody uses the credentials.
    """
    name = client_id or issuer.client_id
    issued_by = None if name == issuer.client_id else issuer.client_id
    times = epoch_milliseconds(start), epoch_milliseconds(expiry)
    certificate = Certificate(tuple(scopes), *times, seed, issued_by).signed_by(issuer, name)
    return TemporaryCredentials(name, _temporary_token(issuer, seed), certificate.to_json())


def _temporary_token(issuer: Client, seed: str) -> str:
    return base64.urlsafe_b64encode(issuer.mac(seed)).decode().rstrip("=")


@dataclass(frozen=True)
class Identity:
    """Who sent a request. ``scopes`` are the expanded scopes of the credentials.

    ``issuer`` is the client that issued the credentials, if they are temporary.
    """

    client_id: str
    scopes: tuple[str, ...]
    expires: datetime | None = None
    issuer: str | None = None

    @property
    def log_name(self) -> str:
        """The sender as the log shows it."""
        return f"{self.client_id} (temporary, issued by {self.issuer})" if self.issuer else self.client_id


def _read_ext(ext: str) -> tuple[Certificate | None, tuple[str, ...] | None]:
    """Reads certificate and authorizedScopes from ``ext``: base64 of JSON, or empty. null means missing."""
    try:
        wire = json.loads(decode_base64(ext)) if ext else {}
        certificate = wire.get("certificate")
        scopes = wire.get("authorizedScopes")
    except (ValueError, RecursionError, AttributeError):
        raise AuthenticationFailed("ext is not base64 of a JSON object", is_of_form=True) from None
    if scopes is not None and not (isinstance(scopes, list) and all(map(is_scope, scopes))):
        raise AuthenticationFailed("authorizedScopes is not a list of scopes", is_of_form=True)
    return (
        None if certificate is None else Certificate.from_wire(certificate),
        None if scopes is None else tuple(scopes),
    )


class Authenticator:
    """Knows the permanent clients and the roles. Everything else is in the request."""

    def __init__(self, clients: Mapping[str, Client], roles: Roles) -> None:
        self._clients = clients
        self._roles = roles

    def expand(self, scopes: Sequence[str]) -> tuple[str, ...]:
        """Returns the scopes, and the scopes of all roles that they assume."""
        return self._roles.expand(scopes)

    def version(self, client_id: str, now: datetime) -> str | None:
        """Returns a text that changes with the client's token and scopes, or None for an unknown client."""
        client = self._clients.get(client_id)
        if client is None or (client.expires is not None and client.expires <= now):
            return None
        return client.mac("\n".join(["version", *self._roles.expand(client.scopes)])).hex()

    def authenticate(self, request: SignedRequest, now: datetime) -> Identity | None:
        """Returns the sender, or None if the request has no credentials. Raises AuthenticationFailed."""
        signature = read_signature(request)
        if signature is None:
            return None
        try:
            return self._identify(signature, request, now)
        except AuthenticationFailed as error:
            client_id = signature.client_id
            raise AuthenticationFailed(error.reason, client_id, is_of_form=error.is_of_form) from None

    def _identify(self, signature: Signature, request: SignedRequest, now: datetime) -> Identity:
        certificate, authorized_scopes = _read_ext(signature.ext)
        issuer_id = (certificate and certificate.issuer) or signature.client_id
        client = self._clients.get(issuer_id)
        if client is None:
            raise AuthenticationFailed("no such issuer" if certificate else "no such client")
        if client.expires is not None and client.expires <= now:
            raise AuthenticationFailed("issuer expired" if certificate else "client expired")
        access_token = client.access_token
        scopes = self._roles.expand(client.scopes)
        expires = client.expires
        # check the certificate first: the key of the MAC is derived from it
        if certificate:
            access_token = certificate.access_token(signature.client_id, client, scopes, now)
        verify(signature, request, access_token, now)
        if certificate:
            scopes = self._roles.expand(certificate.scopes)
            end = from_epoch(certificate.expiry)
            expires = min(end, expires or end)
        if authorized_scopes is not None:
            if not covers(scopes, authorized_scopes):
                raise AuthenticationFailed("authorizedScopes exceed the credentials' scopes")
            scopes = self._roles.expand(authorized_scopes)
        return Identity(signature.client_id, scopes, expires, issuer_id if certificate else None)
