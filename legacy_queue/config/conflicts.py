"""Settings that do not go together, or need a package that is not installed."""

import importlib.util
import sys
from collections.abc import Iterator

from legacy_queue.config.settings import Settings

_AZURE_URLS = ("azure-queue-url", "azure-table-url", "azure-blob-url")
_AZURE = ("connection-string", *_AZURE_URLS, "azure-account", "azure-proxy")
# the settings that need an extra of setup.cfg, with its package
_EXTRAS = {
    "amqp-url": ("amqp", "kombu"),
    "azure-queue-url": ("azure", "azure.identity"),
}


def conflicts(settings: Settings) -> Iterator[str]:
    """A sentence for each conflict, which says what was expected."""
    if settings.storage == "memory" and settings.workers > 1:
        yield "--storage memory lives in one process: expected --workers 1"
    if settings.control and settings.workers > 1:
        yield "--control goes with one server process: expected --workers 1"
    if settings.tls == "auto" and settings.tls_cert:
        yield "--tls auto makes a certificate, and tls-cert names another: give one of them"
    if settings.tls == "off" and settings.tls_name:
        yield "tls-name names the certificate that --tls auto makes: set tls to auto"
    if (settings.tls_cert is None) != (settings.tls_key is None):
        yield "tls-cert and tls-key go together: give both"
    yield from _of_azure(settings)
    for name in _given(settings, tuple(_EXTRAS)):
        extra, package = _EXTRAS[name]
        # kombu has no spec once it is imported
        if not sys.modules.get(package) and not importlib.util.find_spec(package):
            yield (
                f"{name}: {package} is needed, and not installed: "
                f"`pip install 'legacy-queue[{extra}]'` brings it"
            )
    if not settings.is_on_loopback:
        yield from _of_other_machines(settings)


def _given(settings: Settings, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(settings, name.replace("-", "_"))]


def _of_azure(settings: Settings) -> Iterator[str]:
    """Unless the account is named in one way, and only for --storage azure."""
    given = _given(settings, _AZURE)
    if settings.storage != "azure":
        if given:
            yield f"{given[0]} goes with --storage azure, and this is {settings.storage}"
    elif settings.connection_string:
        others = [name for name in given[1:] if name != "azure-proxy"]
        if others:
            yield f"a connection string names the account, and so does {others[0]}: give one"
    elif not set(_AZURE_URLS) <= set(given):
        yield (
            "--storage azure needs a connection string: set LEGACY_QUEUE_CONNECTION_STRING; "
            f"or, for Microsoft Entra ID, {', '.join(_AZURE_URLS)}"
        )


def _of_other_machines(settings: Settings) -> Iterator[str]:
    """If other machines reach the server, but unsafely, or with URLs that fail there."""
    host = settings.host
    if not settings.development and not (settings.clients and settings.signing_secrets):
        yield (
            f"on {host} others can reach the server: configure clients and signing-secrets, "
            "listen on 127.0.0.1 with the development client, or allow it to others with --development"
        )
    if settings.control and not settings.development:
        yield (
            f"on {host} others could reset the server and move its clock: leave out --control, "
            "listen on 127.0.0.1, or allow it to others with --development"
        )
    if host.strip("0:.") == "" and not settings.public_url:
        yield (
            f"{host} is no address that clients could be sent to: say with --public-url how they "
            "reach the server, or listen on the address that they know"
        )
    if settings.storage == "azurite" and not (settings.public_queue_url and settings.public_blob_url):
        yield (
            f"on {host} others will be sent to Azurite, and 127.0.0.1 is no address for them: "
            "use --storage azure, or say with --public-queue-url and --public-blob-url how they reach it"
        )
