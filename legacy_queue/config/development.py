"""What is made up where the operator configures no client and no signing secret."""

import json
from dataclasses import replace
from pathlib import Path

from legacy_queue.adapters.private_folder import make_private, private_opener, tighten
from legacy_queue.config import values
from legacy_queue.config.settings import Settings, SettingsError
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid

DEVELOPMENT = "development"  # the clientId


def complete(settings: Settings) -> Settings:
    """The settings with a client and a signing secret in any case: those of development on loopback.

    What is made up is kept in ``<data-dir>/development.json``, for its owner's eyes, so that credentials and
    messages are good after a restart; with memory storage nothing outlives the server anyway. The data
    directory is made its owner's alone where Azurite's data or an authority's key are in it too. Raises
    SettingsError where directory or file cannot be used.
    """
    if settings.storage == "azurite" or settings.tls == "auto":
        try:
            make_private(settings.data_dir)
        except OSError as error:
            raise _unusable(settings.data_dir, error) from None
    if settings.clients and settings.signing_secrets:
        return settings
    kept = (
        _development()
        if settings.storage == "memory"
        else _kept_development(settings.data_dir / "development.json")
    )
    if not settings.signing_secrets:
        settings = replace(settings, signing_secrets=(kept["signingSecret"],))
    if not settings.clients:
        client = Client(DEVELOPMENT, kept["accessToken"], ("*",))
        settings = replace(settings, clients=(client,), development_client=DEVELOPMENT)
    return settings


def _development() -> dict[str, str]:
    return {name: slugid() + slugid() for name in ("accessToken", "signingSecret")}


def _kept_development(path: Path) -> dict[str, str]:
    try:
        make_private(path.parent)
        try:
            with open(path, "x", opener=private_opener) as file:
                file.write(json.dumps(_development(), indent=2) + "\n")
        except FileExistsError:
            tighten(path)
        kept: dict[str, str] = json.loads(path.read_text())
        if not all(values.is_secret(kept[name]) for name in _development()):
            raise ValueError
        return kept
    except OSError as error:
        raise _unusable(path, error) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SettingsError(
            f"{path} is damaged: remove it, and new development credentials are made"
        ) from None


def _unusable(path: Path, error: OSError) -> SettingsError:
    return SettingsError(f"{path} cannot be written and read: {error.strerror}; use another --data-dir")
