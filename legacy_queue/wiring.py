"""Builds a server from its settings. This is the only place that names both a port and its adapter.

Import it only after gevent has patched. Adapters that are slow to import are imported where they are used.
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

_GATEWAY = "gateway"  # the account name of the gateway in front of an Azure account
MAX_TO_STORAGE = 128  # how many connections to each Azure service a process keeps
_MAX_STREAMS = 500  # how many event streams a process serves
_RETRY_INTERVAL = 0.5  # seconds between two attempts while storage does not answer
_CONFIRM_TIMEOUT = timedelta(seconds=5)


@dataclass
class Server:
    """The application of a process, with its storage, services and threads.

    With --control, a reset replaces all of them except the application.
    """

    app: WsgiApp
    storage: Storage
    site: Site
    background: Background

    @property
    def services(self) -> Services:
        return self.site.services

    def wait_for_storage(self) -> None:
        """Wait until the storage answers. A reset may replace the storage meanwhile."""
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
    """Returns the server for these settings. It sends nothing to storage or broker yet.

    At most an eighth of ``max_connections``, and never more than 500, may follow events. ``storage`` replaces
    the storage that the settings name. ``waiter`` says how requests run concurrently; the default is threads.
    The caller must start the background work in the process that serves.

    Raises SettingsError if a value cannot be used, and UnusableStorage.
    """
    make = partial(
        _build, settings, root_url, clock or SystemClock(), waiter or SystemWaiter(), max_connections
    )
    return _with_reset(settings, make, storage) if settings.control else make(storage)


def _with_reset(settings: Settings, make: Callable[..., Server], storage: Storage | None) -> Server:
    """Returns a server with --control: a reset replaces everything behind its application."""
    queues: dict[str, Mapping[str, str]] = {}

    def reset() -> None:
        """Empty the queue. Raises RequestConflict if the storage is an Azure account.

        Raises ServiceUnavailable if it fails. Then the server answers no request until a reset succeeds.
        """
        if settings.storage == "azure":
            raise RequestConflict(
                "a reset does not delete the tasks in an Azure account: use --storage azurite or memory"
            )
        # looked up when it is called, because another reset may be running
        app.replace(lambda: server.background.begin_stop(), rebuilt)

    def rebuilt() -> WsgiApp:
        was_running = server.background.is_running
        # a reset that failed half-way has closed it, and has the queues already
        with suppress(ServiceUnavailable):
            queues.update(server.storage.account.queues(f"{settings.queue_prefix}-"))
        server.background.abandon()
        server.services.publisher.close()
        server.storage.account.close()  # so that active requests write nothing any more
        new = make(None, reset)
        new.storage.account.empty()
        new.storage.account.check()
        # legacy workers fetch no new URLs if theirs are refused, so their queues must exist again
        for name, metadata in queues.items():
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
    # the gateway does not serve what a public URL names, whose key may be public
    for api, public in ((queues, settings.public_queue_url), (blobs, settings.public_blob_url)):
        if isinstance(account, EmbeddedAccount) or (settings.control and not public):
            app.register_blueprint(api, url_prefix=API_PATH)
    return Server(app, storage, site, background)


def _hosts(settings: Settings, root_url: str) -> set[str]:
    """Returns the names that the server answers to: all, unless it is on loopback or names are set."""
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
    """Returns the application on memory: ``flask --app legacy_queue.wiring:app routes`` lists the API."""
    server = build(Settings(storage="memory", signing_secrets=("of no server",)), "http://localhost")
    assert isinstance(server.app, Flask)  # noqa: S101
    return server.app


@contextmanager
def served_file(settings: Settings) -> Iterator[None]:
    """Make or check the file of embedded storage, and lock it for this process and its forks.

    When the context ends, this process (not a fork) writes the WAL back. Enter it before you write anything
    else into the data directory: if other things are there but no file, the file counts as lost. Raises
    UnusableStorage.
    """
    file = storage_file(settings)
    if file is None:
        yield
        return
    owner = os.getpid()
    azurite = settings.data_dir / "azurite"
    with suppress(PermissionError):  # if it cannot be read, the lock gives a better error
        # so a server with Azurite has started here
        if (azurite / CONNECTION_STRING).exists() and not file.path.exists():
            raise UnusableStorage(
                f"{azurite} has the tasks of an earlier start: start it again with --storage azurite (or "
                "`up --azurite`), or start anew with another --data-dir"
            )
    left = file.lock()
    # servers without a storage file write server.json as well
    with suppress(OSError, ValueError, AttributeError):
        ready = json.loads(read_private(settings.data_dir / SERVER_FILE))
        left += [SERVER_FILE] if ready.get("file") else []
    if file.is_missing and left:
        raise UnusableStorage(
            f"{file.path} is missing or empty, but an earlier start or an interrupted backup left this next "
            f"to it: {', '.join(left)}. Start from a backup with --data-dir, or remove all of this to start "
            "anew"
        )
    file.prepare()
    try:
        yield
    finally:
        if os.getpid() == owner:
            file.finish()


def storage_file(settings: Settings) -> StorageFile | None:
    """Returns the file of embedded storage, or None for any other storage."""
    return StorageFile(settings.data_dir) if settings.storage == "embedded" else None


def make_backup(settings: Settings, folder: Path, show: Progress) -> None:
    """Make a data directory with a copy of the embedded storage and of the generated secrets.

    ``folder`` must not exist yet. Raises UnusableStorage, also if the storage is not embedded.
    """
    file = storage_file(settings)
    if file is None:
        raise UnusableStorage(f"--storage {settings.storage} has no file: expected embedded storage")
    back_up(file, folder, (DEVELOPMENT_FILE, f"{settings.tls_dir.name}/{AUTHORITY_FILE}"), show)


def check_account(settings: Settings) -> None:
    """Raises UnusableStorage if the Azure account refuses this server. An unreachable account is no error."""
    if not settings.is_embedded:
        with suppress(ServiceUnavailable):
            # this gateway signs nothing, because the secrets may not be generated yet
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
    from legacy_queue.adapters.azure import AzureAccount  # imported here because the SDK is slow to import
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
    """Returns the key that signs URLs to this server. A reset or a restart does not change it."""
    return hashlib.sha512(f"legacy-queue/signed-urls/{settings.signing_secrets[0]}".encode()).digest()


def _gateway(settings: Settings, root_url: str) -> SigningEndpoint:
    """Returns the endpoint of the gateway in front of an Azure account."""
    url = f"{root_url}{API_PATH}/{_GATEWAY}"
    return SigningEndpoint(url, _GATEWAY, base64.b64encode(_own_key(settings)).decode(), is_own=True)


def _broker(settings: Settings, observe: Observe) -> Broker | None:
    if settings.amqp_url is None:
        return None
    from legacy_queue.adapters.amqp import AmqpBroker  # imported here because kombu is slow to import

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
        # embedded storage shows by itself what other processes write
        announces_offers=not settings.is_embedded,
    )


def _issuer(secret: str) -> Client:
    """Returns the client that issues the credentials of claims. Each signing secret has its own client.

    Its access token is derived from the secret. Its name identifies the secret without revealing it.
    """
    token = hashlib.sha256(f"legacy-queue/issuer/{secret}".encode()).hexdigest()
    name = hashlib.sha256(f"legacy-queue/issuer-name/{token}".encode()).hexdigest()[:16]
    return Client(f"legacy-queue/issuer/{name}", token, ("*",))
