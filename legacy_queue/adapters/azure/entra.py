"""Access to an account by a Microsoft Entra identity, without an account key.

Tokens and user delegation keys are fetched again before they expire, and never logged. Source: Azure's
"Authorize with Microsoft Entra ID", "Get User Delegation Key" and "Create a user delegation SAS".
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

import structlog
from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError
from azure.storage.queue import UserDelegationKey

from legacy_queue.adapters.azure.connection import Response
from legacy_queue.adapters.azure.rest import Request, RestClient, Service, StorageRefused, elements
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Renewable = TypeVar("Renewable")

_SCOPE = "https://storage.azure.com/.default"  # the same in every cloud
# the first version with user delegation keys for queues
_KEY_VERSIONS = {"queue": "2026-02-06"}
_TOKEN_MARGIN = timedelta(minutes=5)
_KEY_LIFE = timedelta(days=6, hours=12)  # Azure allows 7 days
_KEY_MARGIN = timedelta(hours=12)
_CLOCK_SKEW = timedelta(minutes=15)  # a key is valid from this time before now
_PAUSE = 5.0  # seconds between two fetches
_MAX_WAIT = 7.0  # seconds that a call waits for the fetch of another


class EntraAccess(NamedTuple):
    """The account's name, the URLs of its queues, tables and blobs, and the identity of this server."""

    account: str
    urls: tuple[str, str, str]
    credential: TokenCredential


def default_access(account: str | None, queue_url: str, table_url: str, blob_url: str) -> EntraAccess:
    """With the identity that DefaultAzureCredential finds; ``account`` is by default how the URLs begin."""
    from azure.identity import DefaultAzureCredential  # here, since it takes long to import

    name = account or (urlsplit(queue_url).hostname or "").partition(".")[0]
    credential = DefaultAzureCredential(connection_timeout=3, read_timeout=5, retry_total=0)
    return EntraAccess(name, (queue_url, table_url, blob_url), credential)


class Renewed(Generic[Renewable]):
    """A value that expires and is fetched again before, by one call at a time.

    A value that is still valid serves while another call fetches the next, and where that fails.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[], tuple[Renewable, float]],
        margin: timedelta,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``fetch`` returns the value and when it expires, in seconds since 1970, as ``now``."""
        self._name = name
        self._fetch = fetch
        self._margin = margin.total_seconds()
        self._now = now
        self._held: tuple[Renewable, float] | None = None
        self._next_fetch = 0.0
        self._lock = Lock()

    def get(self, until: float | None = None) -> Renewable:
        """A value that is valid until then, by default now; raises ServiceUnavailable, StorageRefused."""
        until = self._now() if until is None else until
        held = self._held
        if not (held and until + self._margin < held[1]):
            if self._lock.acquire(timeout=0 if held and until < held[1] else _MAX_WAIT):
                try:
                    self._renew(until)
                finally:
                    self._lock.release()
            held = self._held
        if held and until < held[1]:
            return held[0]
        raise ServiceUnavailable(f"there is no {self._name}, try again")

    def _renew(self, until: float) -> None:
        """Fetch it, unless another call just did: a call may wait for another, not for many."""
        if self._now() < self._next_fetch or (self._held and until + self._margin < self._held[1]):
            return
        self._next_fetch = self._now() + _PAUSE
        try:
            self._held = self._fetch()
        except (AzureError, ServiceUnavailable, StorageRefused) as error:
            log.error("storage-access-not-renewed", what=self._name, error=type(error).__name__)
            if isinstance(error, StorageRefused) and not (self._held and until < self._held[1]):
                raise


class EntraToken:
    """The identity's token for storage, which authorizes each request."""

    def __init__(self, credential: TokenCredential) -> None:
        def fetch() -> tuple[str, float]:
            token = credential.get_token(_SCOPE)
            return token.token, token.expires_on

        self._token = Renewed("token of Microsoft Entra ID for storage", fetch, _TOKEN_MARGIN)

    def authorization(self, *_: object) -> str:
        return f"Bearer {self._token.get()}"


class DelegationKey:
    """The key that signs URLs of queues or blobs for the identity."""

    def __init__(self, service: Service, client: Callable[[Service], RestClient]) -> None:
        """``client`` makes the client of a service."""
        requests = client(service._replace(version=_KEY_VERSIONS.get(service.name, service.version)))

        def fetch() -> tuple[UserDelegationKey, float]:
            now = datetime.now(UTC)
            expiry = now + _KEY_LIFE
            times = f"<Start>{_text(now - _CLOCK_SKEW)}</Start><Expiry>{_text(expiry)}</Expiry>"
            request = Request(
                "POST",
                "/",
                [("comp", "userdelegationkey"), ("restype", "service")],
                {"content-type": "application/xml"},
                f"<?xml version='1.0' encoding='utf-8'?><KeyInfo>{times}</KeyInfo>".encode(),
            )
            return requests.send(request, _delegation_key), expiry.timestamp()

        self._key = Renewed(f"user delegation key of {service.name}s", fetch, _KEY_MARGIN)

    def until(self, expiry: datetime) -> UserDelegationKey:
        """A key for URLs that are valid until then; raises ServiceUnavailable, StorageRefused."""
        return self._key.get(expiry.timestamp())


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _delegation_key(response: Response) -> UserDelegationKey:
    """The key, as the functions of the SDK that sign URLs take it."""
    found = elements(response, "UserDelegationKey")
    key: UserDelegationKey = UserDelegationKey()  # type: ignore[no-untyped-call]
    for attribute in ("oid", "tid", "start", "expiry", "service", "version"):
        setattr(key, f"signed_{attribute}", found.find(f"Signed{attribute.title()}").text)
    key.value = found.find("Value").text
    return key
