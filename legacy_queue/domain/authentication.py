"""From a request to who sent it and which scopes that gives: why it does not is told to a log alone.

Source: design/api.md "Authentication", and taskcluster-auth's signature validator of 2017.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from legacy_queue.domain.credentials import Certificate, Client
from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.hawk import (
    Signature,
    SignedRequest,
    authentication_failed,
    decode_base64,
    read_signature,
    verify,
)
from legacy_queue.domain.scopes import Roles, covers, is_scope

__all__ = ["Authenticator", "Client", "Identity", "SignedRequest"]


@dataclass(frozen=True)
class Identity:
    """Who sent a request. ``scopes`` are expanded, and narrowed to what the credentials were made for.

    ``issuer`` is the client that made them, when they are temporary.
    """

    client_id: str
    scopes: tuple[str, ...]
    expires: datetime | None = None
    issuer: str | None = None

    @property
    def log_name(self) -> str:
        """The credentials' name, fit for a log."""
        return f"{self.client_id} (temporary, issued by {self.issuer})" if self.issuer else self.client_id


@dataclass(frozen=True)
class _Extension:
    """What the client says in ``ext``, all of it covered by the MAC."""

    certificate: Certificate | None
    authorized_scopes: tuple[str, ...] | None

    @classmethod
    def read(cls, ext: str) -> Self:
        """Base64 of JSON, or nothing at all; what is null is not there, and unknown keys say nothing."""
        try:
            wire = json.loads(decode_base64(ext)) if ext else {}
        except (ValueError, RecursionError):
            raise authentication_failed("malformed ext") from None
        if not isinstance(wire, dict):
            raise authentication_failed("malformed ext")
        certificate, scopes = wire.get("certificate"), wire.get("authorizedScopes")
        if scopes is not None and not (isinstance(scopes, list) and all(is_scope(one) for one in scopes)):
            raise authentication_failed("malformed authorizedScopes")
        return cls(
            certificate=None if certificate is None else Certificate.from_wire(certificate),
            authorized_scopes=None if scopes is None else tuple(scopes),
        )


class Authenticator:
    """Knows the permanent clients and the roles; everything else comes with the request."""

    def __init__(self, clients: Mapping[str, Client], roles: Roles) -> None:
        self._clients = clients
        self._roles = roles

    def authenticate(self, request: SignedRequest, now: datetime) -> Identity | None:
        """Who sent the request; None when it bears no credentials, and then it has no scopes.

        Raises AuthenticationFailed when it bears any that are not valid for it, now.
        """
        signature = read_signature(request)
        if signature is None:
            return None
        try:
            return self._identify(signature, request, now)
        except AuthenticationFailed as error:
            raise authentication_failed(error.reason, signature.client_id) from None

    def _identify(self, signature: Signature, request: SignedRequest, now: datetime) -> Identity:
        extension = _Extension.read(signature.ext)
        certificate = extension.certificate
        issuer_id = (certificate and certificate.issuer) or signature.client_id
        client = self._clients.get(issuer_id)
        if client is None:
            raise authentication_failed("no such issuer" if certificate else "no such client")
        if client.expires is not None and client.expires <= now:
            raise authentication_failed("issuer expired" if certificate else "client expired")
        access_token, scopes, expires = client.access_token, self._roles.expand(client.scopes), client.expires
        if certificate:
            access_token = certificate.access_token(signature.client_id, client, scopes, now)
        verify(signature, request, access_token, now)
        if certificate:
            scopes, expires = self._roles.expand(certificate.scopes), _earlier(expires, certificate.expiry)
        if extension.authorized_scopes is not None:
            if not covers(scopes, extension.authorized_scopes):
                raise authentication_failed("authorizedScopes exceed the credentials' scopes")
            scopes = self._roles.expand(extension.authorized_scopes)
        return Identity(signature.client_id, scopes, expires, issuer_id if certificate else None)


def _earlier(expires: datetime | None, expiry: int) -> datetime:
    """The earlier of a client's end and its certificate's, which is in ms."""
    end = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=expiry)
    return end if expires is None else min(expires, end)
