"""The server's certificate, generated or configured, and its renewal while the server runs."""

import errno
import ipaddress
import ssl
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from gevent.ssl import SSLContext

from legacy_queue.config import Settings, SettingsError
from legacy_queue.config.certificate_names import names_in
from legacy_queue.server.local_authority import LocalAuthority

log = structlog.get_logger()

_REFRESH_INTERVAL = 60  # seconds


def local_authority(settings: Settings) -> LocalAuthority:
    """Returns the authority in the data directory, also for memory storage: clients need a lasting path."""
    return LocalAuthority(settings.tls_dir, settings.tls_name)


class ServerTls:
    """The TLS context of new connections, with the server's certificate. Raises SettingsError."""

    def __init__(self, settings: Settings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self.authority = local_authority(settings) if settings.tls == "auto" else None
        self._certificate = self.authority.server if self.authority else settings.tls_cert or Path()
        self._key = self.authority.server if self.authority else settings.tls_key or Path()
        self._loaded: object = None
        self.context = _context()
        try:
            self._load()
        except (OSError, ValueError) as error:
            raise SettingsError(_sentence(settings, error)) from None
        if self.authority:
            _check_host(settings, self._certificate)

    def keep_fresh(self) -> None:
        """Refresh once a minute, forever. Run it in a thread or a greenlet."""
        while True:
            time.sleep(_REFRESH_INTERVAL)
            self.refresh()

    def refresh(self) -> None:
        """Renew the certificate if it is due, or load it if its file was replaced. New connections use it."""
        try:
            self._load()
        except Exception as error:  # noqa: BLE001 - so that ``keep_fresh`` goes on
            log.error("tls-certificate-not-loaded", error=f"{type(error).__name__}: {error}")

    def _load(self) -> None:
        if self.authority:
            self.authority.ensure(self._now())
        files = (self._certificate, self._key)
        if not all(stat.S_ISREG(path.stat().st_mode) for path in files):  # reading a pipe would block
            raise OSError(errno.EINVAL, "expected two files")
        versions = [(status.st_mtime_ns, status.st_ino) for status in map(Path.stat, files)]
        if versions != self._loaded:
            # a bad file fails on the new context, and leaves the one in use alone
            for context in (_context(), self.context):
                # without this function OpenSSL would ask for a password at the terminal
                context.load_cert_chain(*files, password=lambda: "")
            self._loaded = versions


def _context() -> ssl.SSLContext:
    context = SSLContext(ssl.PROTOCOL_TLS_SERVER)  # gevent's, so that its sockets block only their greenlet
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # workers of 2016 support no later version
    context.options |= ssl.OP_NO_RENEGOTIATION
    # If this server shuts down a connection while it waits for the client, TLS ends with close_notify instead
    # of a fatal alert. Newer Pythons do not set this option. It is safe, because HTTP says where a request
    # ends.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


def _check_host(settings: Settings, certificate: Path) -> None:
    url = urlsplit(settings.public_url or "")
    host = url.hostname or settings.host
    with suppress(ValueError):
        host = str(ipaddress.ip_address(host))  # in the spelling of a certificate
    if url.scheme != "http" and host not in names_in(certificate):
        raise SettingsError(
            f"clients are sent to {host}, which the certificate does not name: add --tls-name {host}"
        )


def _sentence(settings: Settings, error: Exception) -> str:
    if settings.tls == "auto":
        hint = "" if isinstance(error, ValueError) else "; use another --data-dir"
        return f"{settings.tls_dir} cannot be used: {error}{hint}"
    hint = "; both are PEM, and the key is not encrypted" if isinstance(error, ssl.SSLError) else ""
    return (
        f"the certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: {error}{hint}"
    )
