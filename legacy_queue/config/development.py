"""The development client and its signing secret, which are generated if none are configured."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from legacy_queue.config import values
from legacy_queue.config.given_settings import SettingsError
from legacy_queue.config.settings import DEVELOPMENT_FILE, Settings
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.private_folder import NotOurs, make_private, private_opener, read_private, tighten

log = structlog.get_logger()

DEVELOPMENT = "development"  # the clientId


def complete(settings: Settings) -> Settings:
    """The settings, with at least one client and one signing secret.

    Generated values are stored in ``<data-dir>/development.json``, which only its owner can read, so that
    credentials and messages stay valid after a restart. With memory storage nothing is stored. If the data
    directory exists, or is going to contain tasks or an authority's key, it is made private too. Raises
    SettingsError if the directory or the file cannot be used, or belongs to another user.
    """
    has_all = bool(settings.clients and settings.signing_secrets)
    folder = settings.data_dir
    try:
        is_used = settings.storage in ("azurite", "embedded") or settings.tls == "auto" or folder.exists()
        if is_used and make_private(folder):
            log.warning("data-directory-open", path=str(folder), why="other users may write into it")
        stored = {} if has_all else _generated()
        if stored and settings.storage != "memory":
            stored = _stored_development(folder / DEVELOPMENT_FILE)
    except OSError as error:
        raise SettingsError(
            f"{error.filename} cannot be read and written: {error.strerror}; use another --data-dir"
        ) from None
    if not settings.signing_secrets:
        settings = replace(settings, signing_secrets=(stored["signingSecret"],))
    if not settings.clients:
        client = Client(DEVELOPMENT, stored["accessToken"], ("*",))
        settings = replace(settings, clients=(client,), development_client=DEVELOPMENT)
    return settings


def _generated() -> dict[str, str]:
    return {name: slugid() + slugid() for name in ("accessToken", "signingSecret")}


def _stored_development(path: Path) -> dict[str, str]:
    make_private(path.parent)
    with suppress(FileExistsError), open(path, "x", opener=private_opener) as file:
        file.write(json.dumps(_generated(), indent=2) + "\n")
    try:
        text = read_private(path)
    except NotOurs:
        raise SettingsError(
            f"{path} belongs to another user, or every user may write to it, so others may know its secrets: "
            "remove it, and the server generates new development credentials"
        ) from None
    tighten(path)
    try:
        stored: dict[str, str] = json.loads(text)
        if all(values.is_secret(stored[name]) for name in _generated()):
            return stored
    except (ValueError, KeyError, TypeError):
        pass
    raise SettingsError(f"{path} is damaged: remove it, and the server generates new development credentials")
