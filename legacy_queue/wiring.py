"""The only place that names both a port and its adapter.

Import this only after gevent has patched: it imports the Azure SDK.
"""

import hashlib
from dataclasses import dataclass

from flask import Flask

from legacy_queue.adapters.azure import AzureStorage
from legacy_queue.adapters.clock import SystemClock
from legacy_queue.adapters.memory import MemoryStorage
from legacy_queue.config import Settings, SettingsError
from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.credentials import Client
from legacy_queue.domain.scopes import Roles
from legacy_queue.gateway.azure_face import azure_face
from legacy_queue.http.app import Backend, create_app
from legacy_queue.ports import Clock, Storage
from legacy_queue.services import Services
from legacy_queue.services.changes import Changes
from legacy_queue.services.claims import ClaimRules, Claims
from legacy_queue.services.polling import Polling
from legacy_queue.services.tasks import Tasks
from legacy_queue.services.work_messages import WorkMessages

_FACE = "/azure"  # where the server itself answers signed URLs, with memory storage


@dataclass(frozen=True)
class Server:
    """An application and the storage that it stands on."""

    app: Flask
    storage: Storage


def build(
    settings: Settings, root_url: str, clock: Clock | None = None, storage: Storage | None = None
) -> Server:
    """The server for these settings, which have clients and secrets; nothing is sent to storage yet.

    ``storage`` stands in for the one that the settings name. Raises SettingsError for a connection string
    that cannot be used.
    """
    clock = clock or SystemClock()
    storage = storage or _storage(settings, root_url, clock)
    issuers = [_issuer(secret) for secret in settings.signing_secrets]
    clients = {client.client_id: client for client in (*settings.clients, *issuers)}
    app = create_app(
        Backend(
            services=_services(settings, storage, clock, issuers[0]),
            authenticator=Authenticator(clients, Roles(settings.roles)),
            storage=storage,
            clock=clock,
            root_url=root_url,
            trusts_proxy=settings.trusted_proxy,
        )
    )
    if isinstance(storage, MemoryStorage):
        face = azure_face(storage.work_queues, storage.account, storage.key, clock)
        app.register_blueprint(face, url_prefix=_FACE)
    return Server(app, storage)


def _storage(settings: Settings, root_url: str, clock: Clock) -> MemoryStorage | AzureStorage:
    if settings.storage == "memory":
        return MemoryStorage(clock, settings.public_queue_url or root_url + _FACE, settings.queue_prefix)
    try:
        return AzureStorage(
            settings.connection_string or "", settings.queue_prefix, clock, settings.public_queue_url
        )
    except ValueError as error:
        raise SettingsError(f"the connection string cannot be used: {error}") from None


def _services(settings: Settings, storage: Storage, clock: Clock, issuer: Client) -> Services:
    secrets = [secret.encode() for secret in settings.signing_secrets]
    messages = WorkMessages(storage.work_queues, clock, secrets)
    changes = Changes(storage.tasks, messages)
    required = frozenset(name for name, policy in settings.worker_types.items() if policy == "required")
    rules = ClaimRules(secrets, settings.claim_timeout, required, issuer)
    return Services(
        tasks=Tasks(storage.tasks, storage.groups, changes, messages, clock),
        claims=Claims(changes, messages, clock, rules),
        polling=Polling(storage.work_queues, clock, settings.sas_life, settings.poll_visibility),
    )


def _issuer(secret: str) -> Client:
    """Who signs the credentials of claims: one for each signing secret, so that both rotate together.

    Its access token is derived from the secret; its name tells which secret, and nothing about it.
    """
    token = hashlib.sha256(f"legacy-queue/issuer/{secret}".encode()).hexdigest()
    name = hashlib.sha256(f"legacy-queue/issuer-name/{token}".encode()).hexdigest()[:16]
    return Client(f"legacy-queue/issuer/{name}", token, ("*",))
