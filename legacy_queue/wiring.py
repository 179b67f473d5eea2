"""The only place that names both a port and its adapter.

Import it only after gevent has patched. Adapters that take long to import are imported where they are used.
"""

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import Flask

from legacy_queue.adapters.clock import MovableClock, SystemClock, SystemWaiter
from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile, back_up
from legacy_queue.config import AUTHORITY_FILE, DEVELOPMENT_FILE, SERVER_FILE, Settings, SettingsError
from legacy_queue.config.certificate_names import names_in
from legacy_queue.domain.authentication import Authenticator, Client
from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.scopes import Roles
from legacy_queue.gateway.azure_blob_api import azure_blob_api
from legacy_queue.gateway.azure_protocol import API_PATH
from legacy_queue.gateway.azure_queue_api import azure_queue_api
from legacy_queue.http.app import create_app
from legacy_queue.http.browser_guard import ANY
from legacy_queue.http.current_app import CurrentApp
from legacy_queue.http.declared_endpoints import FAULT_TARGETS, NOT_IN_JOURNAL
from legacy_queue.http.endpoints.artifacts import UPLOADS
from legacy_queue.http.endpoints.inspect import SCOPE
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.http.metrics import Metrics
from legacy_queue.http.page.sign_in import SignIn
from legacy_queue.http.request_journal import Journal
from legacy_queue.http.request_log import WsgiApp, record_of
from legacy_queue.http.site import Control, Site
from legacy_queue.local_processes.azurite import CONNECTION_STRING
from legacy_queue.ports import Broker, Clock, Observe, Progress, Waiter, ignore
from legacy_queue.ports.account import SigningEndpoint, StorageAccount, UnusableStorage
from legacy_queue.private_folder import read_private
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.services.control.fault_registry import FaultRegistry
from legacy_queue.services.control.message_injection import MessageInjection
from legacy_queue.services.process.background import Background
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.services import Services
from legacy_queue.stores import Storage

if TYPE_CHECKING:
    from legacy_queue.adapters.azure import AzureAccount

_GATEWAY = "gateway"  # its account name
MAX_TO_STORAGE = 128  # connections of a process to a service of Azure that are kept
_MAX_STREAMS = 500  # event streams of a process
_RETRY_INTERVAL = 0.5  # seconds, until storage answers
_CONFIRM_TIMEOUT = timedelta(seconds=5)


@dataclass
class Server:
    """The application of a process, its storage, services and threads.

    With control, a reset replaces all of them but the application.
    """

    app: WsgiApp
    storage: Storage
    site: Site
    background: Background

    @property
    def services(self) -> Services:
        return self.site.services

    def wait_for_storage(self) -> None:
        """Wait until the storage answers. A reset may replace the storage while this waits."""
        while True:
            try:
                return self.storage.account.check()
            except ServiceUnavailable:
                time.sleep(_RETRY_INTERVAL)


def build(
    settings: Settings,
    root_url: str,
    clock: Clock | None = None,
    storage: Storage | None = None,
    max_connections: int = 4000,
    waiter: Waiter | None = None,
) -> Server:
    """The server for these settings. Sends nothing to storage or broker yet.

    An eighth of ``max_connections`` may follow events. ``storage`` replaces that of the settings.
    ``waiter`` knows how the requests of the process go on beside each other: as threads by default. The
    caller starts the background in the process that serves.
    Raises SettingsError for a value that cannot be used, UnusableStorage.
    """
    make = partial(
        _build, settings, root_url, clock or SystemClock(), waiter or SystemWaiter(), max_connections
    )
    return _with_reset(settings, make, storage) if settings.control else make(storage)


def _with_reset(settings: Settings, make: Callable[..., Server], storage: Storage | None) -> Server:
    """A server with control: a reset replaces everything behind its application."""
    queues: dict[str, Mapping[str, str]] = {}

    def reset() -> None:
        """Raises RequestConflict. Raises ServiceUnavailable: no request is served until a reset succeeds."""
        if settings.storage == "azure":
            raise RequestConflict(
                "the tasks of an Azure account are not removed by a test: use --storage azurite or memory"
            )
        # the background of that moment: another reset may be under way
        app.replace(lambda: server.background.begin_stop(), rebuilt)

    def rebuilt() -> WsgiApp:
        was_running = server.background.is_running
        with suppress(ServiceUnavailable):  # closed by a reset that failed half-way, which knows them
            queues.update(server.storage.account.queues(f"{settings.queue_prefix}-"))
        server.background.abandon()
        server.services.publisher.close()
        server.storage.account.close()  # requests under way write nothing any more
        new = make(None, reset)
        new.storage.account.empty()
        new.storage.account.check()
        for name, metadata in queues.items():  # old workers fetch no new URLs where theirs are refused
            new.storage.account.queue(name).create(metadata)
        if was_running:
            new.background.start()
        server.storage = new.storage
        server.site = new.site
        server.background = new.background
        return new.app

    server = make(storage, reset)
    server.app = app = CurrentApp(server.app)
    return server


def _build(
    settings: Settings,
    root_url: str,
    clock: Clock,
    waiter: Waiter,
    max_connections: int,
    storage: Storage | None,
    reset: Callable[[], None] | None = None,
) -> Server:
    if settings.control and storage is None and settings.is_embedded:
        clock = MovableClock(clock)
    metrics = Metrics(settings.storage, settings.metrics_pools)
    if storage is None:
        account = _account(settings, root_url, clock, waiter, metrics.observe)
        storage = Storage(account, settings.queue_prefix, clock)
    issuers = [_issuer(secret) for secret in settings.signing_secrets]
    clients = {client.client_id: client for client in (*settings.clients, *issuers)}
    service_settings = _service_settings(settings, issuers[0], root_url, max_connections)
    broker = _broker(settings, metrics.observe)
    services = Services(storage, broker, clock, waiter, service_settings)
    metrics.watch(services)
    background = services.background()
    authenticator = Authenticator(clients, Roles(settings.roles))
    sign_in = SignIn(
        SCOPE, settings.signing_secrets[0], authenticator, root_url.startswith("https:"), clock.wall_time
    )
    site = Site(
        services=services,
        authenticator=authenticator,
        sign_in=sign_in,
        metrics=metrics,
        journal=Journal(NOT_IN_JOURNAL, clock.now),
        faults=FaultRegistry(FAULT_TARGETS),
        upload_slots=UploadSlots(),
        root_url=root_url,
        control=reset
        and Control(
            clock=services.clock_control(),
            messages=MessageInjection(storage.work_queues, services.tasks, service_settings.secrets[0]),
            reset=reset,
            is_kept=settings.storage != "memory",
        ),
        hosts=_hosts(settings, root_url),
        origins=settings.origins,
        proxies=settings.trusted_proxy,
        shape=settings.answer_shape,
        anonymous=settings.anonymous_scopes,
        project=settings.project,
        is_development=settings.development,
        has_legacy_stubs=settings.legacy_stubs,
    )
    app = create_app(site)
    injection = FaultInjection(site.faults, services.stopping)
    account = storage.account
    queues = azure_queue_api(storage, clock, injection, record_of, services.calls.record_poll)
    blobs = azure_blob_api(account, clock, waiter, site.upload_slots, injection, record_of)
    # a public URL of an Azure account leads elsewhere, and its key may be public
    for api, public in ((queues, settings.public_queue_url), (blobs, settings.public_blob_url)):
        if isinstance(account, EmbeddedAccount) or (settings.control and not public):
            app.register_blueprint(api, url_prefix=API_PATH)
    return Server(app, storage, site, background)


def _hosts(settings: Settings, root_url: str) -> set[str]:
    """The names that the server answers to: all, unless it is on loopback or some are configured."""
    if not settings.allowed_hosts and not settings.is_on_loopback:
        return {ANY}
    urls = root_url, settings.public_queue_url or "", settings.public_blob_url or ""
    named = {"localhost", *settings.allowed_hosts, *settings.tls_name}
    if settings.legacy_stubs:
        domain = (urlsplit(root_url).hostname or "").partition(".")[2]
        named |= {f"{service}.{domain}" for service in ("auth", "purge-cache")}
    if settings.tls_cert:
        named |= {name.lower() for name in names_in(settings.tls_cert)}
    return named | {urlsplit(url).hostname or "localhost" for url in urls}


def app() -> Flask:
    """The application on memory, for ``flask --app legacy_queue.wiring:app routes``, which lists the API."""
    server = build(Settings(storage="memory", signing_secrets=("of no server",)), "http://localhost")
    assert isinstance(server.app, Flask)  # noqa: S101
    return server.app


@contextmanager
def served_file(settings: Settings) -> Iterator[None]:
    """Make or check the file of embedded storage, and lock it for this process and its forks.

    At the end this process, not a fork, writes the WAL back. It comes before anything else is written beside
    the file: that without a file means that the file was lost. Raises UnusableStorage.
    """
    file = storage_file(settings)
    if file is None:
        yield
        return
    owner = os.getpid()
    azurite = settings.data_dir / "azurite"
    with suppress(PermissionError):  # the lock says that better
        if (azurite / CONNECTION_STRING).exists() and not file.path.exists():  # it began to serve
            raise UnusableStorage(
                f"{azurite} holds the tasks of an earlier start: go on with --storage azurite, or begin anew "
                "with another --data-dir"
            )
    left = file.lock()
    with suppress(OSError, ValueError, AttributeError):  # a server without a file writes one too
        ready = json.loads(read_private(settings.data_dir / SERVER_FILE))
        left += [SERVER_FILE] if ready.get("file") else []
    if file.is_missing and left:
        raise UnusableStorage(
            f"{file.path} is missing or empty, but beside it is what an earlier start, or a backup that was "
            f"cut off, has left: {', '.join(left)}. Start from a backup with --data-dir, or remove all that "
            "to begin anew"
        )
    file.prepare()
    try:
        yield
    finally:
        if os.getpid() == owner:
            file.finish()


def storage_file(settings: Settings) -> StorageFile | None:
    """The file of embedded storage; None with any other storage."""
    return StorageFile(settings.data_dir) if settings.storage == "embedded" else None


def make_backup(settings: Settings, folder: Path, show: Progress) -> None:
    """Make the folder a data directory with the embedded storage, and the secrets that were generated for it.

    It must not exist. Raises UnusableStorage, also with any other storage.
    """
    file = storage_file(settings)
    if file is None:
        raise UnusableStorage(f"--storage {settings.storage} has no file: this is for embedded storage")
    back_up(file, folder, (DEVELOPMENT_FILE, f"{settings.tls_dir.name}/{AUTHORITY_FILE}"), show)


def check_account(settings: Settings) -> None:
    """Raises UnusableStorage where Azure's account refuses this server. An account out of reach passes."""
    if not settings.is_embedded:
        with suppress(ServiceUnavailable):
            # it signs nothing, and the secrets may not be made yet
            gateway = SigningEndpoint("", _GATEWAY, "") if settings.control else None
            _azure_account(settings, gateway, ignore).check_access()


def _account(
    settings: Settings, root_url: str, clock: Clock, waiter: Waiter, observe: Observe
) -> StorageAccount:
    if settings.is_embedded:
        own = root_url + API_PATH
        queue_url = settings.public_queue_url or own
        blob_url = settings.public_blob_url or own
        file = storage_file(settings)
        return EmbeddedAccount(
            file,
            clock,
            queue_url,
            settings.queue_prefix,
            blob_url=blob_url,
            synchronous=settings.synchronous,
            key=None if file else _own_key(settings),
            observe=observe,
            waiter=waiter,
        )
    return _azure_account(settings, _gateway(settings, root_url) if settings.control else None, observe)


def _azure_account(settings: Settings, gateway: SigningEndpoint | None, observe: Observe) -> "AzureAccount":
    from legacy_queue.adapters.azure import AzureAccount  # here, since the SDK takes long to import
    from legacy_queue.adapters.azure.access import default_access
    from legacy_queue.adapters.azure.transport import Transport

    queues = settings.azure_queue_url
    tables = settings.azure_table_url
    blobs = settings.azure_blob_url
    access = settings.connection_string or ""
    public = settings.public_queue_url, settings.public_blob_url
    transport = partial(Transport, proxy=settings.azure_proxy, observe=observe, max_idle=MAX_TO_STORAGE)
    try:
        at = (
            default_access(settings.azure_account, queues, tables, blobs)
            if queues and tables and blobs
            else access
        )
        return AzureAccount(at, settings.queue_prefix, *public, gateway, transport)
    except ValueError as error:
        named = "account's URLs" if queues else "connection string"
        raise SettingsError(f"the {named} cannot be used: {error}") from None


def _own_key(settings: Settings) -> bytes:
    """The key of signed URLs to this server. It is the same after a reset and a restart."""
    return hashlib.sha512(f"legacy-queue/signed-urls/{settings.signing_secrets[0]}".encode()).digest()


def _gateway(settings: Settings, root_url: str) -> SigningEndpoint:
    """The gateway before an Azure account."""
    url = f"{root_url}{API_PATH}/{_GATEWAY}"
    return SigningEndpoint(url, _GATEWAY, base64.b64encode(_own_key(settings)).decode(), is_own=True)


def _broker(settings: Settings, observe: Observe) -> Broker | None:
    if settings.amqp_url is None:
        return None
    from legacy_queue.adapters.amqp import AmqpBroker  # here, since kombu takes long to import

    return AmqpBroker(settings.amqp_url, settings.project, _CONFIRM_TIMEOUT, observe=observe)


def _service_settings(
    settings: Settings, issuer: Client, root_url: str, max_connections: int
) -> ServiceSettings:
    required = (name for name, policy in settings.worker_types.items() if policy == "required")
    return ServiceSettings(
        secrets=[secret.encode() for secret in settings.signing_secrets],
        issuer=issuer,
        claim_timeout=settings.claim_timeout,
        sas_life=settings.sas_life,
        poll_visibility=settings.poll_visibility,
        claim_work_wait=settings.claim_work_wait,
        upload_url=root_url + UPLOADS,
        proof_required=frozenset(required),
        max_streams=min(_MAX_STREAMS, max_connections // 8),
        has_todays_events=settings.event_shape == "today",
        max_polls=4 if settings.is_embedded else 32,
        # embedded storage shows what other processes write
        tells_offers=not settings.is_embedded,
    )


def _issuer(secret: str) -> Client:
    """The client that signs the credentials of claims: each signing secret has its own.

    Its access token is derived from the secret. Its name identifies the secret without revealing it.
    """
    token = hashlib.sha256(f"legacy-queue/issuer/{secret}".encode()).hexdigest()
    name = hashlib.sha256(f"legacy-queue/issuer-name/{token}".encode()).hexdigest()[:16]
    return Client(f"legacy-queue/issuer/{name}", token, ("*",))
