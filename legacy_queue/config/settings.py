"""The settings. Each is declared once, as a field of Settings.

The declaration of ``claim_timeout`` makes the option ``--claim-timeout``, the variable
``LEGACY_QUEUE_CLAIM_TIMEOUT``, the key ``claim-timeout`` of the settings file, the help, and the reference.
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
SERVER_FILE = "server.json"  # the ready line of a running server; commands of the same user read it


def _setting(
    section: str,
    value_type: values.Value,
    default: Any,
    description: str,
    secret: bool = False,
    generated: bool = False,
) -> Any:
    """A field of Settings. ``section`` is its heading in --help-all. A ``default`` that is text is parsed.

    A ``secret`` appears in no repr and in no error. If a ``generated`` setting is not configured, the server
    generates a value for development.
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
    """The settings in force. ``development_client`` is the clientId of the generated client, if any."""

    storage: str = _storage(
        values.one_of("embedded", "azurite", "azure", "memory"),
        "embedded",
        "Where tasks are stored: embedded (a file), azurite (started by the server), azure (an account), or "
        "memory (lost when the server ends).",
    )
    data_dir: Path = _storage(
        values.path,
        ".legacy-queue",
        "The directory for everything that survives a restart, such as the file of embedded storage.",
    )
    synchronous: str = _storage(
        values.one_of("normal", "full"),
        "normal",
        "For embedded storage: in a power failure, normal loses about the last second, full loses nothing.",
    )
    connection_string: str | None = _storage(
        values.text, None, "The connection string of the account, for --storage azure.", secret=True
    )
    azure_queue_url: str | None = _storage(
        values.azure_url,
        None,
        "The account's queue URL. With the next two URLs it replaces the connection string: the server then "
        "signs in with Microsoft Entra ID.",
    )
    azure_table_url: str | None = _storage(values.azure_url, None, "The account's table URL.")
    azure_blob_url: str | None = _storage(values.azure_url, None, "The account's blob URL.")
    azure_account: str | None = _storage(
        values.account, None, "The name of the account, if it is not the first label of the URLs' host names."
    )
    azure_proxy: str | None = _storage(
        values.proxy,
        None,
        "The HTTP proxy for requests to Azure. The server ignores proxies that the environment names.",
    )
    azurite_dir: Path | None = _storage(
        values.path,
        None,
        "A directory with Azurite in its node_modules. By default the server starts the azurite on the PATH.",
    )
    azurite_default_account: bool = _storage(
        values.flag,
        "false",
        "true: Azurite's account has the key in Azurite's documentation, which everybody knows. false: the "
        "key is random.",
    )
    queue_prefix: str = _storage(
        values.prefix, "lq", "The names of all queues and tables begin with these characters."
    )
    host: str = _network(values.text, "127.0.0.1", "The address to listen on.")
    port: int = _network(values.port, "8080", "The port to listen on. If it is 0, the system chooses one.")
    workers: int = _network(
        values.count,
        "1",
        "The number of server processes. Without amqp-url, each process knows only its own events.",
    )
    public_url: str | None = _network(
        values.url,
        None,
        "The root URL that clients use, if it is not the address that the server listens on.",
    )
    public_queue_url: str | None = _network(
        values.url, None, "The queue endpoint that workers poll, if it is not the one that the server uses."
    )
    public_blob_url: str | None = _network(
        values.url, None, "The blob endpoint of artifacts, if it is not the one that the server uses."
    )
    tls: str = _network(
        values.one_of("off", "auto"),
        "off",
        "auto: serve https with a certificate authority in the data directory. off: serve http, unless "
        "tls-cert is set.",
    )
    tls_name: tuple[str, ...] = _network(
        values.tls_names,
        (),
        "Another host name or IP address for the certificate of --tls auto; may be repeated.",
    )
    tls_cert: Path | None = _network(
        values.path, None, "The PEM file of your own certificate, instead of --tls auto."
    )
    tls_key: Path | None = _network(values.path, None, "The PEM file of the private key for tls-cert.")
    allowed_hosts: tuple[str, ...] = _network(
        values.hosts,
        (),
        "Another host name that the server answers to, or * for every name; may be repeated.",
    )
    cors_origins: tuple[str, ...] = _network(
        values.origins,
        "auto",
        "The origins whose web pages may call the server: an origin (may be repeated), * (all), none, or "
        "auto. auto is none with the development client and on loopback without --public-url, otherwise *.",
    )
    trusted_proxy: tuple[Network, ...] = _network(
        values.networks,
        (),
        "The address or network of a proxy whose x-forwarded headers are trusted; may be repeated.",
    )
    clients: tuple[Client, ...] = _clients(
        values.clients,
        (),
        "The clients, each with its accessToken and its scopes. Better in the settings file.",
        secret=True,
        generated=True,
    )
    roles: Mapping[str, tuple[str, ...]] = _clients(values.roles, {}, "The roles, each with its scopes.")
    anonymous_scopes: tuple[str, ...] = _clients(
        values.anonymous_scopes,
        "reads",
        "What every caller may read, even without credentials: reads (/events, and everything that needed no "
        "scope in 2018), none, or scopes; may be repeated.",
    )
    signing_secrets: tuple[str, ...] = _clients(
        values.secrets,
        (),
        "The secrets that sign messages: the first one signs, any of them verifies.",
        secret=True,
        generated=True,
    )
    claim_timeout: timedelta = _protocol(values.duration, "20m", "How long a claim lasts.")
    poll_visibility: timedelta = _protocol(
        values.duration, "5m", "How long a message stays invisible after a poll."
    )
    sas_life: timedelta = _protocol(values.sas_life, "30m", "How long signed poll URLs are valid.")
    claim_work_wait: timedelta = _protocol(
        values.claim_work_wait, "20s", "How long claimWork waits for work, at most 20s."
    )
    worker_types: Mapping[str, str] = _protocol(
        values.policies,
        {},
        "The policy of each provisionerId/workerType. optional: claimTask may leave out its message. "
        "required: claimTask must name its message.",
    )
    answer_shape: str = _protocol(
        values.one_of(BY_PATH, *SHAPES),
        BY_PATH,
        "The format of answers: that of 2018, of today, or by-path (2018 under /v1, today elsewhere).",
    )
    legacy_stubs: bool = _protocol(
        values.flag, "false", "true: answer the calls that old workers make to purge-cache and auth."
    )
    amqp_url: str | None = _events(
        values.amqp_url, None, "The URL of the RabbitMQ on which to publish the events.", secret=True
    )
    project: str = _events(
        values.project, PROJECT, "The project in the names of the exchanges: exchange/<project>/v1/..."
    )
    event_shape: str = _events(values.one_of(*SHAPES), "2018", "The format of events: 2018 or today.")
    control: bool = _tests(
        values.flag,
        "false",
        "true: tests may move the clock, cause faults, read messages, and reset the queue (/control/v1).",
    )
    development: bool = _tests(values.flag, "false", "true: other machines may use the development client.")
    log_format: str = _logs(
        values.one_of(*LOG_FORMATS),
        "auto",
        "The format of the log: text, json, or auto (text on a terminal, else json).",
    )
    log_level: str = _logs(
        values.one_of(*LOG_LEVELS),
        "info",
        "The lowest level that is logged: debug, info (with every request), warning or error.",
    )
    metrics_pools: int = _logs(
        values.count, "50", "How many pools have metrics of their own. The other pools are added up."
    )
    development_client: str | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether the server itself stores the tasks, in a file or in memory, and answers polls."""
        return self.storage in ("embedded", "memory")

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine can reach the server. Of host names, only localhost counts."""
        return is_loopback(self.host)

    @property
    def origins(self) -> tuple[str, ...]:
        """The origins that ``cors_origins`` allows, with auto and none resolved."""
        is_private = self.is_on_loopback and not self.public_url
        is_open = not (self.development or self.development_client or is_private)
        if self.cors_origins == ("auto",):
            return ("*",) if is_open else ()
        return () if self.cors_origins == ("none",) else self.cors_origins

    @property
    def tls_dir(self) -> Path:
        """The directory of the certificate authority that ``tls`` auto makes."""
        return self.data_dir / "tls"

    @property
    def has_tls(self) -> bool:
        """Whether the server speaks https."""
        return self.tls == "auto" or self.tls_cert is not None


DECLARED: tuple[Field[Any], ...] = tuple(setting for setting in fields(Settings) if setting.metadata)


def wire_name(name: str) -> str:
    """``claim_timeout`` -> ``claim-timeout``, as in an option and in the file."""
    return name.replace("_", "-")
