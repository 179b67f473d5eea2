"""The server's certificate, made here or configured, and its renewal while the server runs."""

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
    """The authority in the data directory, also with memory storage: its path stays the same for clients."""
    return LocalAuthority(settings.tls_dir, settings.tls_name)


class ServerTls:
    """The TLS of new connections: ``context`` has the server's certificate. Raises SettingsError."""

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
        """Refresh once a minute, without end. For a thread or a greenlet."""
        while True:
            time.sleep(_REFRESH_INTERVAL)
            self.refresh()

    def refresh(self) -> None:
        """Renew a certificate that is due, and load one that was replaced, for all new connections."""
        try:
            self._load()
        except Exception as error:  # noqa: BLE001 - ``keep_fresh`` must go on
            log.error("tls-certificate-not-loaded", error=f"{type(error).__name__}: {error}")

    def _load(self) -> None:
        if self.authority:
            self.authority.ensure(self._now())
        files = (self._certificate, self._key)
        if not all(stat.S_ISREG(path.stat().st_mode) for path in files):  # a pipe would block
            raise OSError(errno.EINVAL, "both are files")
        versions = [(status.st_mtime_ns, status.st_ino) for status in map(Path.stat, files)]
        if versions != self._loaded:
            for context in (_context(), self.context):  # a bad file fails on the first context
                # without a password function OpenSSL would ask at the terminal
                context.load_cert_chain(*files, password=lambda: "")
            self._loaded = versions


def _context() -> ssl.SSLContext:
    context = SSLContext(ssl.PROTOCOL_TLS_SERVER)  # its sockets wait in their greenlet
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # workers of 2016 have no later version
    context.options |= ssl.OP_NO_RENEGOTIATION
    # A connection that this server shuts while it waits ends with close_notify, not with a fatal alert. Newer
    # Pythons do not set it themselves. HTTP itself says where a request ends.
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


def _check_host(settings: Settings, certificate: Path) -> None:
    url = urlsplit(settings.public_url or "")
    host = url.hostname or settings.host
    with suppress(ValueError):
        host = str(ipaddress.ip_address(host))  # spelled as in a certificate
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
