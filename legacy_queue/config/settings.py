"""The settings: each is declared once, as a field of Settings.

Its option, its variable, its key in the file, the help and the reference follow from the declaration:
``claim_timeout`` is ``--claim-timeout``, ``LEGACY_QUEUE_CLAIM_TIMEOUT`` and ``claim-timeout`` in the file.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from legacy_queue.config import values
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.formats_of_2018 import BY_PATH, SHAPES
from legacy_queue.domain.hosts import Network, is_loopback
from legacy_queue.domain.topics import PROJECT

LOG_FORMATS = ("auto", "text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
DEVELOPMENT_FILE = "development.json"
AUTHORITY_FILE = "authority.pem"  # in ``tls_dir``: key and certificate
SERVER_FILE = "server.json"  # the ready line of a running server, for the commands of the same user


def _setting(
    section: str,
    value_type: values.Value,
    default: Any,
    description: str,
    secret: bool = False,
    generated: bool = False,
) -> Any:
    """A field of Settings. ``section`` is its title in --help-all. A default that is text is parsed.

    A ``secret`` is in no repr, and in no error. What is ``generated`` is made for development if none is
    configured.
    """
    value = value_type.parse(default) if isinstance(default, str) else default
    metadata = {
        "section": section,
        "type": value_type,
        "default": "generated for development" if generated else default,  # for the help
        "help": description,
        "secret": secret,
        "generated": generated,
    }
    return field(default_factory=lambda: value, repr=not secret, metadata=metadata)


_storage = partial(_setting, "Storage")
_network = partial(_setting, "Network")
_clients = partial(_setting, "Clients")
_protocol = partial(_setting, "Protocol")
_events = partial(_setting, "Events")
_tests = partial(_setting, "Tests")
_logs = partial(_setting, "Logs and metrics")


@dataclass(frozen=True)
class Settings:
    """The settings in force. ``development_client`` is the clientId of a generated client."""

    storage: str = _storage(
        values.one_of("embedded", "azurite", "azure", "memory"),
        "embedded",
        "embedded (a file), azurite (started by the server), azure, or memory (ends with the server).",
    )
    data_dir: Path = _storage(
        values.path,
        ".legacy-queue",
        "The directory of everything that survives a restart, such as the file of embedded storage.",
    )
    synchronous: str = _storage(
        values.one_of("normal", "full"),
        "normal",
        "Of the embedded storage: after a power failure, normal loses about a second, full loses nothing.",
    )
    connection_string: str | None = _storage(
        values.text, None, "The connection string of the account, for --storage azure.", secret=True
    )
    azure_queue_url: str | None = _storage(
        values.azure_url, None, "Instead of a connection string, with Microsoft Entra ID: the queue URL."
    )
    azure_table_url: str | None = _storage(values.azure_url, None, "The account's table URL.")
    azure_blob_url: str | None = _storage(values.azure_url, None, "The account's blob URL.")
    azure_account: str | None = _storage(values.account, None, "Its name, if the URLs do not begin with it.")
    azure_proxy: str | None = _storage(
        values.proxy, None, "The HTTP proxy to Azure; those of the environment are not used."
    )
    azurite_dir: Path | None = _storage(
        values.path, None, "The directory whose node_modules has Azurite, instead of the azurite on PATH."
    )
    azurite_default_account: bool = _storage(
        values.flag,
        "false",
        "true: Azurite's account has its documented key, which everybody knows, instead of a random one.",
    )
    queue_prefix: str = _storage(
        values.prefix, "lq", "The first characters of the names of queues and tables."
    )
    host: str = _network(values.text, "127.0.0.1", "The address to listen on.")
    port: int = _network(values.port, "8080", "The port to listen on; 0 lets the system choose.")
    workers: int = _network(values.count, "1", "Server processes. Without amqp-url each has its own events.")
    public_url: str | None = _network(values.url, None, "The root URL that clients use, if it differs.")
    public_queue_url: str | None = _network(
        values.url, None, "The queue endpoint that workers poll, if it differs."
    )
    public_blob_url: str | None = _network(values.url, None, "The blob endpoint of artifacts, if it differs.")
    tls: str = _network(
        values.one_of("off", "auto"),
        "off",
        "auto: serve https, with a certificate authority in the data directory; or off.",
    )
    tls_name: tuple[str, ...] = _network(
        values.tls_names, (), "A further host name or IP address of the certificate; may be repeated."
    )
    tls_cert: Path | None = _network(
        values.path, None, "Instead of --tls auto: the PEM file of your own certificate."
    )
    tls_key: Path | None = _network(values.path, None, "The PEM file of its private key.")
    allowed_hosts: tuple[str, ...] = _network(
        values.hosts, (), "A further host name that the server answers to, or * for all; may be repeated."
    )
    cors_origins: tuple[str, ...] = _network(
        values.origins,
        "auto",
        "An origin whose pages in browsers may call the server; may be repeated. Or *, none, or auto: "
        "none with the development client, and on loopback without --public-url, otherwise *.",
    )
    trusted_proxy: tuple[Network, ...] = _network(
        values.networks,
        (),
        "An address or network of proxies whose x-forwarded headers are trusted; may be repeated.",
    )
    clients: tuple[Client, ...] = _clients(
        values.clients,
        (),
        "The clients: accessToken and scopes of each clientId; better in the file.",
        secret=True,
        generated=True,
    )
    roles: Mapping[str, tuple[str, ...]] = _clients(values.roles, {}, "The roles: the scopes of each.")
    anonymous_scopes: tuple[str, ...] = _clients(
        values.anonymous_scopes,
        "reads",
        "What any caller may read, also without credentials: reads (/events, and all that needed no scope in "
        "2018), none, or scopes; may be repeated.",
    )
    signing_secrets: tuple[str, ...] = _clients(
        values.secrets,
        (),
        "The secrets of messages: the first one signs, any of them verifies.",
        secret=True,
        generated=True,
    )
    claim_timeout: timedelta = _protocol(values.duration, "20m", "How long a claim lasts.")
    poll_visibility: timedelta = _protocol(
        values.duration, "5m", "How long a polled message stays invisible."
    )
    sas_life: timedelta = _protocol(values.sas_life, "30m", "How long signed poll URLs are valid.")
    claim_work_wait: timedelta = _protocol(
        values.claim_work_wait, "20s", "How long claimWork waits for work, at most 20s."
    )
    worker_types: Mapping[str, str] = _protocol(
        values.policies, {}, "For each provisionerId/workerType: is a claim's message optional or required?"
    )
    answer_shape: str = _protocol(
        values.one_of(BY_PATH, *SHAPES),
        BY_PATH,
        "The clients that answers are for: by-path (of 2018 under /v1, else of today), 2018 or today.",
    )
    legacy_stubs: bool = _protocol(
        values.flag, "false", "true: answer the calls of old workers to purge-cache and auth."
    )
    amqp_url: str | None = _events(
        values.amqp_url, None, "The URL of the RabbitMQ that the events are published on.", secret=True
    )
    project: str = _events(
        values.project, PROJECT, "The project in the exchanges' names: exchange/<project>/v1/..."
    )
    event_shape: str = _events(values.one_of(*SHAPES), "2018", "The event format: 2018 or today.")
    control: bool = _tests(
        values.flag,
        "false",
        "true: tests may move the clock, cause faults, read messages and reset (/control/v1).",
    )
    development: bool = _tests(values.flag, "false", "true: other machines may use the development client.")
    log_format: str = _logs(
        values.one_of(*LOG_FORMATS), "auto", "text, json, or auto: text at a terminal, else json."
    )
    log_level: str = _logs(
        values.one_of(*LOG_LEVELS),
        "info",
        "The lowest level that is logged: debug, info (every request), warning or error.",
    )
    metrics_pools: int = _logs(
        values.count, "50", "How many pools have metrics of their own; the others are summed."
    )
    development_client: str | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether storage is in this server's own file or memory, and workers poll it through the server."""
        return self.storage in ("embedded", "memory")

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine reaches the server. A host name other than localhost never counts."""
        return is_loopback(self.host)

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins of ``cors_origins``."""
        is_private = self.is_on_loopback and not self.public_url
        is_open = not (self.development or self.development_client or is_private)
        if self.cors_origins == ("auto",):
            return ("*",) if is_open else ()
        return () if self.cors_origins == ("none",) else self.cors_origins

    @property
    def tls_dir(self) -> Path:
        """The directory of the authority of ``tls`` auto."""
        return self.data_dir / "tls"

    @property
    def has_tls(self) -> bool:
        """Whether the server speaks https."""
        return self.tls == "auto" or self.tls_cert is not None


DECLARED: tuple[Field[Any], ...] = tuple(setting for setting in fields(Settings) if setting.metadata)


def wire_name(name: str) -> str:
    """``claim_timeout`` -> ``claim-timeout``, as in an option and in the file."""
    return name.replace("_", "-")
