"""Settings of the Azure account that do not go together."""

from typing import Any

_URLS = ("azure-queue-url", "azure-table-url", "azure-blob-url")
_NAMES = ("connection-string", *_URLS, "azure-account", "azure-proxy")


def azure_problem(settings: Any) -> str | None:
    """A sentence, unless the account is named in one way, and only for --storage azure."""
    given = [name for name in _NAMES if getattr(settings, name.replace("-", "_"))]
    if settings.storage != "azure":
        return f"{given[0]} goes with --storage azure, and this is {settings.storage}" if given else None
    if settings.connection_string:
        others = [name for name in given[1:] if name != "azure-proxy"]
        return f"a connection string names the account, and so does {others[0]}: give one" if others else None
    if all(name in given for name in _URLS):
        return None
    return (
        "--storage azure needs a connection string: set LEGACY_QUEUE_CONNECTION_STRING; "
        f"or, for Microsoft Entra ID, {', '.join(_URLS)}"
    )
