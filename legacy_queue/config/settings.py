"""The settings. A setting has the same name as an option, as a variable and in the file.

``--claim-timeout`` is ``LEGACY_QUEUE_CLAIM_TIMEOUT`` and ``claim-timeout`` in the file. An unknown name is
refused; the error names the nearest setting, or says what replaces a removed one. Secrets never reach a repr
or a message.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from legacy_queue.config import values
from legacy_queue.config.conflicts import conflicts
from legacy_queue.config.removed import REMOVED
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.generations import BY_PATH, SHAPES
from legacy_queue.domain.hosts import Network, is_loopback
from legacy_queue.domain.topics import PROJECT

LOG_FORMATS = ("auto", "text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
DEVELOPMENT_FILE = "development.json"
AUTHORITY_FILE = "authority.pem"  # in ``tls_dir``: key and certificate
SERVER_FILE = "server.json"  # the ready line of a running server, for the commands of the same user
PREFIX = "LEGACY_QUEUE_"
CONFIG = "config"  # names the TOML file; an option and a variable like the others
_CLIENT_VARIABLES = {
    "root-url",
    "base-url",
    "python",
}  # of the commands that call a queue, and of the test kit


class SettingsError(click.ClickException):
    """A sentence: what is wrong with the settings, and what would be accepted. It ends a command."""


def _setting(
    parse: Callable[[Any], Any],
    default: Any,
    description: str,
    secret: bool = False,
    multiple: bool = False,
    words: Sequence[str] = (),
) -> Any:
    """A field of Settings. ``multiple``: its option may be repeated. ``words`` are its values, if
    it has few. A default is parsed if it is text.
    """
    value = parse(default) if isinstance(default, str) else default
    metadata = {"parse": parse, "help": description, "secret": secret, "multiple": multiple, "words": words}
    metadata["default"] = default or "none"  # as text
    return field(default_factory=lambda: value, repr=not secret, metadata=metadata)


def _one_of(words: Sequence[str], default: str, description: str) -> Any:
    return _setting(values.one_of(*words), default, description, words=words)


@dataclass(frozen=True)
class Settings:
    """The settings in force. ``development_client`` is the clientId of a generated client."""

    host: str = _setting(values.text, "127.0.0.1", "The address to listen on.")
    port: int = _setting(values.port, "8080", "The port to listen on; 0 lets the system choose.")
    workers: int = _setting(values.count, "1", "Server processes. Without amqp-url each has its own events.")
    storage: str = _one_of(
        ("embedded", "azurite", "azure", "memory"),
        "embedded",
        "embedded (a file), azurite (started by the server), azure, or memory (ends with the server).",
    )
    synchronous: str = _one_of(
        ("normal", "full"),
        "normal",
        "Of the embedded storage: after a power failure, normal lacks about a second, full lacks nothing.",
    )
    data_dir: Path = _setting(
        values.path,
        ".legacy-queue",
        "The directory of everything that survives a restart, such as the file of embedded storage.",
    )
    azurite_dir: Path | None = _setting(
        values.path, None, "The directory whose node_modules has Azurite, instead of the azurite on PATH."
    )
    azurite_default_account: bool = _setting(
        values.flag,
        "false",
        "true: Azurite's account has its documented key, which everybody knows, instead of a random one.",
    )
    connection_string: str | None = _setting(
        values.text, None, "The connection string of the account, for --storage azure.", True
    )
    azure_queue_url: str | None = _setting(
        values.azure_url, None, "Instead of a connection string, with Microsoft Entra ID: the queue URL."
    )
    azure_table_url: str | None = _setting(values.azure_url, None, "The account's table URL.")
    azure_blob_url: str | None = _setting(values.azure_url, None, "The account's blob URL.")
    azure_account: str | None = _setting(values.account, None, "Its name, if the URLs do not begin with it.")
    azure_proxy: str | None = _setting(
        values.proxy, None, "The HTTP proxy to Azure; those of the environment are not used."
    )
    queue_prefix: str = _setting(
        values.prefix, "lq", "The first characters of the names of queues and tables."
    )
    public_url: str | None = _setting(values.url, None, "The root URL that clients use, if it differs.")
    public_queue_url: str | None = _setting(
        values.url, None, "The queue endpoint that workers poll, if it differs."
    )
    public_blob_url: str | None = _setting(values.url, None, "The blob endpoint of artifacts, if it differs.")
    tls: str = _one_of(
        ("off", "auto"),
        "off",
        "auto: serve https, with a certificate authority in the data directory; or off.",
    )
    tls_name: tuple[str, ...] = _setting(
        values.tls_names,
        (),
        "A further host name or IP address of the certificate; may be repeated.",
        multiple=True,
    )
    tls_cert: Path | None = _setting(
        values.path, None, "Instead of --tls auto: the PEM file of your own certificate."
    )
    tls_key: Path | None = _setting(values.path, None, "The PEM file of its private key.")
    allowed_hosts: tuple[str, ...] = _setting(
        values.hosts,
        (),
        "A further host name that the server answers to, or * for all; may be repeated.",
        multiple=True,
    )
    cors_origins: tuple[str, ...] = _setting(
        values.origins,
        "auto",
        "An origin whose pages in browsers may call the server; may be repeated. Or *, none, or auto: "
        "none with the development client, and on loopback without --public-url, otherwise *.",
        multiple=True,
    )
    trusted_proxy: tuple[Network, ...] = _setting(
        values.networks,
        (),
        "An address or network of proxies whose x-forwarded headers are believed; may be repeated.",
        multiple=True,
    )
    claim_timeout: timedelta = _setting(values.duration, "20m", "How long a claim lasts.")
    poll_visibility: timedelta = _setting(values.duration, "5m", "How long a polled message stays invisible.")
    sas_life: timedelta = _setting(values.sas_life, "30m", "How long signed poll URLs are valid.")
    claim_work_wait: timedelta = _setting(
        values.claim_work_wait, "20s", "How long claimWork waits for work, at most 20s."
    )
    clients: tuple[Client, ...] = _setting(
        values.clients, (), "The clients: accessToken and scopes of each clientId; better in the file.", True
    )
    roles: Mapping[str, tuple[str, ...]] = _setting(values.roles, {}, "The roles: the scopes of each.")
    anonymous_scopes: tuple[str, ...] = _setting(
        values.anonymous_scopes,
        "reads",
        "What any caller may read, also without credentials: reads (/events, and all that needed no scope in "
        "2018), none, or scopes; may be repeated.",
        multiple=True,
    )
    signing_secrets: tuple[str, ...] = _setting(
        values.secrets, (), "The secrets of messages: the first signs, all verify.", True
    )
    worker_types: Mapping[str, str] = _setting(
        values.policies, {}, "For each provisionerId/workerType: is a claim's message optional or required?"
    )
    amqp_url: str | None = _setting(
        values.amqp_url, None, "The URL of the RabbitMQ that the events are published on.", True
    )
    project: str = _setting(
        values.project, PROJECT, "The project in the exchanges' names: exchange/<project>/v1/..."
    )
    answer_shape: str = _one_of(
        (BY_PATH, *SHAPES),
        BY_PATH,
        "The clients that answers are for: by-path (of 2018 under /v1, else of today), 2018 or today.",
    )
    event_shape: str = _one_of(SHAPES, "2018", "The readers that events are for: 2018 or today.")
    log_format: str = _one_of(LOG_FORMATS, "auto", "text, json, or auto: text at a terminal, else json.")
    log_level: str = _one_of(
        LOG_LEVELS,
        "info",
        "The lowest level that is logged: debug, info (every request), warning or error.",
    )
    metrics_pools: int = _setting(
        values.count, "50", "How many pools have metrics of their own; the others are summed."
    )
    legacy_stubs: bool = _setting(
        values.flag,
        "false",
        "true: answer the calls of old workers to purge-cache and auth.",
    )
    control: bool = _setting(
        values.flag,
        "false",
        "true: tests may move the clock, cause faults, read messages and reset (/control/v1).",
    )
    development: bool = _setting(
        values.flag,
        "false",
        "true: other machines may use the development client.",
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


def load(options: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[Settings, Mapping[str, str]]:
    """The settings, and the source of each: an option, a variable, the file, or ``default``.

    ``options`` are named as in the file or as the fields; one that is not given is None. Raises
    SettingsError.
    """
    options = {wire_name(name): value for name, value in options.items()}
    given = {name for name, value in options.items() if value is not None}
    _refuse_unknown(given, lambda name: f"--{name}", {CONFIG})
    variables = {
        wire_name(name.removeprefix(PREFIX).lower()): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and not name.startswith(f"{PREFIX}TEST_")
    }
    others = {CONFIG, *_CLIENT_VARIABLES}
    _refuse_unknown(variables, lambda name: PREFIX + name.replace("-", "_").upper(), others)
    file = options.get(CONFIG) or variables.get(CONFIG)
    from_file = _read(Path(file)) if file else {}
    _refuse_unknown(from_file, str, set())
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for setting in DECLARED:
        name = wire_name(setting.name)
        candidates = (
            (f"--{name}", options.get(name)),
            (PREFIX + setting.name.upper(), variables.get(name)),
            (f"{name} in {file}", from_file.get(name)),
        )
        source, value = next(((s, v) for s, v in candidates if v is not None), ("default", None))
        sources[name] = source
        if value is not None:
            found[setting.name] = _parsed(setting, source, value)
    settings = Settings(**found)
    for problem in conflicts(settings):
        raise SettingsError(problem)
    return settings, sources


def _parsed(setting: Field[Any], source: str, value: Any) -> Any:
    try:
        return setting.metadata["parse"](value)
    except ValueError as error:
        shown = "" if setting.metadata["secret"] else f" is {values.without_secrets(str(value))[:200]!r}"
        raise SettingsError(f"{source}{shown}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None


def _refuse_unknown(names: Iterable[str], shown: Callable[[str], str], others: set[str]) -> None:
    """Raises SettingsError for a name that is neither a setting nor one of the ``others``."""
    known = [*(wire_name(setting.name) for setting in DECLARED), *sorted(others)]
    for name in sorted(set(names) - set(known)):
        if name in REMOVED:
            raise SettingsError(f"{shown(name)} was removed: {REMOVED[name]}")
        near = difflib.get_close_matches(name, known, 1, 0)
        raise SettingsError(f"there is no setting {shown(name)}; the nearest is {shown(near[0])}")
