"""How this server gets access to an account, by its key or by a Microsoft Entra identity, and signs URLs for
it.

This module keeps tokens and user delegation keys. It never logs them.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import structlog
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient, generate_blob_sas
from azure.storage.queue import QueueServiceClient, generate_queue_sas

from legacy_queue.adapters.azure.errors import StorageRefused, call
from legacy_queue.adapters.url_signer import UrlSigner
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

_TOKEN_MARGIN = timedelta(minutes=5)  # this long before a token expires, the SDK asks for another
_KEY_LIFE = timedelta(days=6, hours=12)  # Azure allows 7 days
_KEY_MARGIN = timedelta(hours=12)
_CLOCK_SKEW = timedelta(minutes=15)  # a key is valid from this long before now
_PAUSE = timedelta(seconds=5)  # between two fetches
_MAX_WAIT = 7.0  # seconds that a call waits while another one fetches


class Access(NamedTuple):
    """Access to an account. ``urls`` are of queues, tables and blobs. ``key`` is empty for an identity."""

    account: str
    urls: Sequence[str]
    credential: Any
    key: str = ""


def parse_connection_string(connection_string: str) -> Access:
    """Return the access of a connection string. Raises ValueError, also if it has no account key."""
    kinds: list[Any] = [QueueServiceClient, TableServiceClient, BlobServiceClient]
    clients = [kind.from_connection_string(connection_string) for kind in kinds]
    credential = clients[1].credential
    if not isinstance(credential, AzureNamedKeyCredential):
        raise ValueError("it has no AccountKey, which is needed to sign poll URLs")
    account, key = credential.named_key
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise ValueError("its AccountKey is not base64") from None
    return Access(account, [client.url for client in clients], credential, key)


def default_access(account: str | None, queue_url: str, table_url: str, blob_url: str) -> Access:
    """Return the access of the identity that DefaultAzureCredential finds.

    By default the account is the first label of the queue URL's host name.
    """
    from azure.identity import DefaultAzureCredential  # imported here because it is slow to import

    name = account or (urlsplit(queue_url).hostname or "").partition(".")[0]
    credential = DefaultAzureCredential(connection_timeout=3, read_timeout=5, retry_total=0)
    return Access(name, (queue_url, table_url, blob_url), credential)


@dataclass(eq=False, repr=False)
class RenewedSecret:
    """A secret that expires. It is fetched again a ``margin`` before that, by one call at a time.

    As long as the old secret is valid, other calls use it, even if the fetch fails. ``fetch`` gets the
    current time and returns the secret and when it expires.
    """

    name: str
    fetch: Callable[[datetime], tuple[Any, datetime]]
    margin: timedelta
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._value: Any = None
        self._expiry = self._next_fetch = datetime.min.replace(tzinfo=UTC)
        self._lock = Lock()

    def until(self, time: datetime) -> Any:
        """Return a secret that is valid until then. Raises ServiceUnavailable."""
        wait = 0 if time < self._expiry else _MAX_WAIT
        if self._expiry < time + self.margin and self._lock.acquire(timeout=wait):
            try:
                self._renew(time)
            finally:
                self._lock.release()
        if time < self._expiry:
            return self._value
        raise ServiceUnavailable(f"there is no {self.name}, try again")

    def _renew(self, time: datetime) -> None:
        """Fetch the secret, unless another call just did. So a call waits for one fetch, not for several."""
        now = self.now()
        if now < self._next_fetch or time + self.margin <= self._expiry:
            return
        self._next_fetch = now + _PAUSE
        try:
            self._value, self._expiry = self.fetch(now)
        except Exception as error:  # azure-identity may raise any error if it cannot read an answer
            log.error("storage-access-not-renewed", what=self.name, error=type(error).__name__)
            if isinstance(error, StorageRefused) and self._expiry <= time:
                raise


def delegation_key(service: str, fetch: Callable[[datetime, datetime], Any]) -> RenewedSecret:
    """Return the user delegation key of a service. ``fetch`` gets a key that is valid between two times."""

    def fetched(now: datetime) -> tuple[Any, datetime]:
        return call(lambda: fetch(now - _CLOCK_SKEW, now + _KEY_LIFE)), now + _KEY_LIFE

    return RenewedSecret(f"user delegation key of {service}s", fetched, _KEY_MARGIN)


class StorageToken:
    """An identity's token for storage, in the form of an SDK credential.

    The SDK never sees an error of azure-identity, which may contain secrets.
    """

    def __init__(self, credential: Any) -> None:
        def fetched(_now: datetime) -> tuple[AccessToken, datetime]:
            # this scope is the same in every cloud
            token = credential.get_token("https://storage.azure.com/.default")
            return token, datetime.fromtimestamp(token.expires_on, UTC)

        self._token = RenewedSecret("token of Microsoft Entra ID for storage", fetched, _TOKEN_MARGIN)

    def get_token(self, *_: str, **__: Any) -> Any:
        """Return an AccessToken. Raises ServiceUnavailable."""
        return self._token.until(datetime.now(UTC))


@dataclass(frozen=True)
class AzureUrlSigner(UrlSigner):
    """Signs with the SDK's functions, by the user delegation key or else by the endpoint's key."""

    delegation_key: RenewedSecret | None = None

    def _queue_sas(self, name: str, permission: str, start: datetime, expiry: datetime, policy: str) -> str:
        common = self._common(permission, start, expiry)
        return generate_queue_sas(self.endpoint.account, name, policy_id=policy or None, **common)

    def _blob_sas(
        self, container: str, name: str, permission: str, start: datetime, expiry: datetime, disposition: str
    ) -> str:
        common = {**self._common(permission, start, expiry), "content_disposition": disposition or None}
        return generate_blob_sas(self.endpoint.account, container, name, **common)

    def _common(self, permission: str, start: datetime, expiry: datetime) -> Mapping[str, Any]:
        """Return the arguments that both functions take."""
        common = {"permission": permission, "start": start, "expiry": expiry, "protocol": self._protocol}
        if self.delegation_key:
            return {**common, "user_delegation_key": self.delegation_key.until(expiry)}
        return {**common, "account_key": self.endpoint.key}
