"""The settings, each with one name.

``--claim-timeout`` is ``LEGACY_QUEUE_CLAIM_TIMEOUT`` and ``claim-timeout`` in the file. An unknown name is
refused with the nearest known one. Secrets never reach a repr or a message.
"""

import difflib
import ipaddress
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from legacy_queue.adapters.tls_files import TlsFiles
from legacy_queue.config import values
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.events import PROJECT

PREFIX = "LEGACY_QUEUE_"
CONFIG = "config"  # names the TOML file; an option and a variable like the others
_OF_THE_WORKER = {"root-url", "base-url"}  # the sample worker's variables


class SettingsError(Exception):
    """What is wrong with the settings and what would be accepted, in a sentence."""


def _setting(
    parse: Callable[[Any], Any], default: Any, description: str, secret: bool = False, **more: Any
) -> Any:
    """``more`` says how click reads the option."""
    metadata = {"parse": parse, "help": description, "secret": secret, "option": more}
    return field(default_factory=lambda: default, repr=not secret, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """What is in force. ``development_client`` is the clientId of the client made up for want of another."""

    host: str = _setting(values.text, "127.0.0.1", "The address to listen on.")
    port: int = _setting(values.port, 8080, "The port to listen on; 0 lets the system choose.")
    workers: int = _setting(values.count, 1, "Server processes.")
    storage: str = _setting(values.storage, "azurite", "azurite (started here), azure or memory.")
    data_dir: Path = _setting(values.path, Path(".legacy-queue"), "What survives: Azurite's data.")
    azurite_dir: Path | None = _setting(
        values.path, None, "Where Azurite is installed, if not in the user's cache."
    )
    azurite_patches: str = _setting(
        values.azurite_patches, "all", "all: Azurite's operations are made cheaper; none: it runs as it is."
    )
    connection_string: str | None = _setting(values.text, None, "The account, for --storage azure.", True)
    queue_prefix: str = _setting(values.prefix, "lq", "What names of queues and tables start with.")
    public_url: str | None = _setting(values.url, None, "The root URL that clients use, if another.")
    public_queue_url: str | None = _setting(
        values.url, None, "The queue endpoint that workers poll, if another."
    )
    public_blob_url: str | None = _setting(
        values.url, None, "The blob endpoint that artifacts are at, if another."
    )
    tls: str = _setting(
        values.tls, "off", "auto: serve https, with an authority made in the data directory; or off."
    )
    tls_name: tuple[str, ...] = _setting(
        values.tls_names, (), "A further name or IP address of the certificate; repeatable.", multiple=True
    )
    tls_cert: Path | None = _setting(values.path, None, "Instead: the PEM file of your own certificate.")
    tls_key: Path | None = _setting(values.path, None, "The PEM file of its private key.")
    trusted_proxy: bool = _setting(values.flag, False, "true: believe x-forwarded-host, -port and -proto.")
    claim_timeout: timedelta = _setting(values.duration, timedelta(minutes=20), "How long a claim lasts.")
    poll_visibility: timedelta = _setting(
        values.duration, timedelta(minutes=5), "How long a polled message is invisible."
    )
    sas_life: timedelta = _setting(values.sas_life, timedelta(minutes=30), "How long poll URLs are good.")
    clients: tuple[Client, ...] = _setting(
        values.clients, (), "clientId -> accessToken and scopes; better in the file.", True
    )
    roles: Mapping[str, tuple[str, ...]] = _setting(values.roles, {}, "role -> scopes.")
    signing_secrets: tuple[str, ...] = _setting(
        values.secrets, (), "Sign messages: the first signs, all verify.", True
    )
    worker_types: Mapping[str, str] = _setting(
        values.policies, {}, "provisionerId/workerType -> optional or required: the message at a claim."
    )
    amqp_url: str | None = _setting(values.amqp_url, None, "RabbitMQ, where the events are published.", True)
    project: str = _setting(values.project, PROJECT, "Names the exchanges: exchange/<project>/v1/...")
    claim_work_wait: timedelta = _setting(
        values.claim_work_wait, timedelta(seconds=20), "How long claimWork waits for work, at most 20s."
    )
    s3_endpoint: str | None = _setting(
        values.s3_endpoint, None, "Where s3 artifacts go; else through the server."
    )
    s3_bucket: str | None = _setting(values.bucket, None, "The bucket there, which exists already.")
    s3_region: str = _setting(values.word, "us-east-1", "What URLs there are signed for.")
    s3_access_key_id: str | None = _setting(values.word, None, "Who signs them.")
    s3_secret_access_key: str | None = _setting(values.word, None, "What they are signed with.", True)
    resolvers: bool = _setting(values.flag, True, "false: leave timers and expiry to others.")
    log_format: str = _setting(
        values.log_format, "auto", "text for a person, json, or auto: text at a terminal."
    )
    log_level: str = _setting(
        values.log_level, "info", "What is logged: debug, info (every request), warning or error."
    )
    legacy_stubs: bool = _setting(
        values.flag,
        False,
        "true: answer what old workers ask of purge-cache and auth.",
        is_flag=False,
        flag_value="true",
    )
    control: bool = _setting(
        values.flag,
        False,
        "true: tests may move the clock, cause faults, look inside and reset (/control/v1).",
        is_flag=False,
        flag_value="true",
    )
    development: bool = _setting(
        values.flag,
        False,
        "true: others may reach the development client, and Azurite with its known key.",
        is_flag=False,
        flag_value="true",
    )
    development_client: str | None = None

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine reaches the server; never for a name."""
        try:
            return ipaddress.ip_address("127.0.0.1" if self.host == "localhost" else self.host).is_loopback
        except ValueError:
            return False

    @property
    def tls_dir(self) -> Path:
        """Where ``tls`` auto keeps its authority."""
        return self.data_dir / "tls"

    @property
    def tls_files(self) -> TlsFiles | None:
        """What https is served with; None: http is."""
        if self.tls == "auto":
            return TlsFiles.in_folder(self.tls_dir)
        return (
            TlsFiles(self.tls_cert, self.tls_key, self.tls_cert) if self.tls_cert and self.tls_key else None
        )


DECLARED: tuple[Field[Any], ...] = tuple(one for one in fields(Settings) if one.metadata)


def wire_name(name: str) -> str:
    """``claim_timeout`` -> ``claim-timeout``, as in an option and in the file."""
    return name.replace("_", "-")


def load(options: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[Settings, Mapping[str, str]]:
    """The settings, and where each was found: an option, a variable, the file, or ``default``.

    ``options`` are named as in the file, None where they are not given. Raises SettingsError.
    """
    variables = {
        wire_name(name.removeprefix(PREFIX).lower()): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and not name.startswith(f"{PREFIX}TEST_")
    }
    _refuse_unknown(
        variables.keys() - _OF_THE_WORKER - {CONFIG}, lambda name: PREFIX + name.replace("-", "_").upper()
    )
    file = options.get(CONFIG) or variables.get(CONFIG)
    from_file = _read(Path(file)) if file else {}
    _refuse_unknown(from_file.keys(), str)
    found: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for one in DECLARED:
        name = wire_name(one.name)
        candidates = (
            (f"--{name}", options.get(name)),
            (PREFIX + one.name.upper(), variables.get(name)),
            (f"{name} in {file}", from_file.get(name)),
        )
        source, value = next(((s, v) for s, v in candidates if v is not None), ("default", None))
        sources[name] = source
        if value is not None:
            found[one.name] = _parsed(one, source, value)
    settings = Settings(**found)
    _check(settings)
    return settings, sources


def _parsed(one: Field[Any], source: str, value: Any) -> Any:
    try:
        return one.metadata["parse"](value)
    except ValueError as error:
        shown = "" if one.metadata["secret"] else f" is {values.without_secrets(str(value))[:200]!r}"
        raise SettingsError(f"{source}{shown}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None


def _refuse_unknown(names: Iterable[str], shown: Callable[[str], str]) -> None:
    known = [wire_name(one.name) for one in DECLARED]
    for name in sorted(set(names) - set(known)):
        near = difflib.get_close_matches(name, known, 1, 0)
        raise SettingsError(f"there is no setting {shown(name)}; the nearest is {shown(near[0])}")


def _check(settings: Settings) -> None:
    """What is wrong between settings; each is fine alone."""
    if settings.storage == "azure" and not settings.connection_string:
        raise SettingsError("--storage azure needs a connection string: set LEGACY_QUEUE_CONNECTION_STRING")
    if settings.storage != "azure" and settings.connection_string:
        raise SettingsError(f"a connection string goes with --storage azure, and this is {settings.storage}")
    if settings.storage == "memory" and settings.workers > 1:
        raise SettingsError("--storage memory lives in one process: --workers 1 is accepted")
    if settings.control and settings.workers > 1:
        raise SettingsError("--control goes with one server process: --workers 1 is accepted")
    s3_names = ("s3_endpoint", "s3_bucket", "s3_access_key_id", "s3_secret_access_key")
    missing = [wire_name(name) for name in s3_names if not getattr(settings, name)]
    if 0 < len(missing) < len(s3_names):
        raise SettingsError(
            f"{' and '.join(missing)} must be set too: {', '.join(map(wire_name, s3_names))} go together"
        )
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise SettingsError("tls-cert and tls-key go together: give both")
    if settings.tls == "auto" and settings.tls_cert:
        raise SettingsError("--tls auto makes a certificate, and tls-cert names another: give one of them")
    if settings.tls == "off" and settings.tls_name:
        raise SettingsError("tls-name names the certificate that --tls auto makes: set tls to auto")
    _check_host(settings)


def _check_host(settings: Settings) -> None:
    """Only this machine reaches a loopback address; what others reach must be safe, and be reached."""
    host = settings.host
    if settings.is_on_loopback:
        return
    if not settings.development and not (settings.clients and settings.signing_secrets):
        raise SettingsError(
            f"on {host} others can reach the server: configure clients and signing-secrets, "
            "listen on 127.0.0.1 with the development client, or allow it to others with --development"
        )
    if settings.control and not settings.development:
        raise SettingsError(
            f"on {host} others could reset the server and move its clock: leave out --control, "
            "listen on 127.0.0.1, or allow it to others with --development"
        )
    if host.strip("0:.") == "" and not settings.public_url:
        raise SettingsError(
            f"{host} is no address that clients could be sent to: say with --public-url how they "
            "reach the server, or listen on the one address that they know"
        )
    if settings.storage == "azurite" and not (settings.public_queue_url and settings.public_blob_url):
        raise SettingsError(
            f"on {host} others will be sent to Azurite, and 127.0.0.1 is no address for them: "
            "use --storage azure, or say with --public-queue-url and --public-blob-url how they reach it"
        )
