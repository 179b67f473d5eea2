"""From a request to who sent it and which scopes that gives: why it does not is told to a log alone.

Source: design/api.md "Authentication", and taskcluster-auth's signature validator of 2017.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.credentials import Certificate, Client
from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.hawk import Signature, SignedRequest, decode_base64, read_signature, verify
from legacy_queue.domain.scopes import Roles, covers, is_scope
from legacy_queue.domain.times import from_epoch

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


def _read_ext(ext: str) -> tuple[Certificate | None, tuple[str, ...] | None]:
    """The certificate and authorizedScopes: base64 of JSON, or nothing; what is null is not there."""
    try:
        wire = json.loads(decode_base64(ext)) if ext else {}
        certificate, scopes = wire.get("certificate"), wire.get("authorizedScopes")
    except (ValueError, RecursionError, AttributeError):
        raise AuthenticationFailed("malformed ext") from None
    if scopes is not None and not (isinstance(scopes, list) and all(is_scope(one) for one in scopes)):
        raise AuthenticationFailed("malformed authorizedScopes")
    return (
        None if certificate is None else Certificate.from_wire(certificate),
        None if scopes is None else tuple(scopes),
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
            raise AuthenticationFailed(error.reason, signature.client_id) from None

    def _identify(self, signature: Signature, request: SignedRequest, now: datetime) -> Identity:
        certificate, authorized_scopes = _read_ext(signature.ext)
        issuer_id = (certificate and certificate.issuer) or signature.client_id
        client = self._clients.get(issuer_id)
        if client is None:
            raise AuthenticationFailed("no such issuer" if certificate else "no such client")
        if client.expires is not None and client.expires <= now:
            raise AuthenticationFailed("issuer expired" if certificate else "client expired")
        access_token, scopes, expires = client.access_token, self._roles.expand(client.scopes), client.expires
        if certificate:
            access_token = certificate.access_token(signature.client_id, client, scopes, now)
        verify(signature, request, access_token, now)
        if certificate:
            scopes, end = self._roles.expand(certificate.scopes), from_epoch(certificate.expiry)
            expires = min(end, expires or end)
        if authorized_scopes is not None:
            if not covers(scopes, authorized_scopes):
                raise AuthenticationFailed("authorizedScopes exceed the credentials' scopes")
            scopes = self._roles.expand(authorized_scopes)
        return Identity(signature.client_id, scopes, expires, issuer_id if certificate else None)
