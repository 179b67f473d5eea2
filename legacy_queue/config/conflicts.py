"""Settings that contradict each other, or that need a package which is not installed."""

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
        yield "--storage memory works only in one process: expected --workers 1"
    if settings.control and settings.workers > 1:
        yield "--control works only with one server process: expected --workers 1"
    if settings.tls == "auto" and settings.tls_cert:
        yield "--tls auto and tls-cert exclude each other: set one of them"
    if settings.tls == "off" and settings.tls_name:
        yield "tls-name is for the certificate that --tls auto makes: set tls to auto"
    if (settings.tls_cert is None) != (settings.tls_key is None):
        yield "tls-cert and tls-key need each other: set both"
    yield from _of_azure(settings)
    for name in _given(settings, tuple(_EXTRAS)):
        extra, package = _EXTRAS[name]
        # kombu has no spec once it is imported
        if not sys.modules.get(package) and not importlib.util.find_spec(package):
            yield (
                f"{name} needs the package {package}, which is not installed: run "
                f"`pip install 'legacy-queue[{extra}]'`"
            )
    if not settings.is_on_loopback:
        yield from _of_other_machines(settings)


def _given(settings: Settings, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(settings, name.replace("-", "_"))]


def _of_azure(settings: Settings) -> Iterator[str]:
    """Whether the account is named twice, or not at all, or for another storage."""
    given = _given(settings, _AZURE)
    if settings.storage != "azure":
        if given:
            yield f"{given[0]} works only with --storage azure, but storage is {settings.storage}"
    elif settings.connection_string:
        others = [name for name in given[1:] if name != "azure-proxy"]
        if others:
            yield f"the connection string and {others[0]} both name the account: set one of them"
    elif not set(_AZURE_URLS) <= set(given):
        yield (
            "--storage azure needs an account: set LEGACY_QUEUE_CONNECTION_STRING; "
            f"or, for Microsoft Entra ID, {', '.join(_AZURE_URLS)}"
        )


def _of_other_machines(settings: Settings) -> Iterator[str]:
    """What would be unsafe, or would not work, if other machines reach the server."""
    host = settings.host
    if not settings.development and not (settings.clients and settings.signing_secrets):
        yield (
            f"on {host} other machines can reach the server, and would use its development client: set "
            "clients and signing-secrets, listen on 127.0.0.1, or allow this with --development"
        )
    if settings.control and not settings.development:
        yield (
            f"on {host} other machines could reset the server and move its clock: leave out --control, "
            "listen on 127.0.0.1, or allow this with --development"
        )
    if host.strip("0:.") == "" and not settings.public_url:
        yield (
            f"clients cannot be sent to {host}: set --public-url to the URL at which they reach the server, "
            "or listen on the address that they use"
        )
    if settings.storage == "azurite" and not (settings.public_queue_url and settings.public_blob_url):
        yield (
            f"on {host} other machines would be sent to Azurite on 127.0.0.1, which they cannot reach: use "
            "--storage azure, or set --public-queue-url and --public-blob-url to URLs that reach Azurite"
        )
