"""How the value of each setting is read: from text, or from what TOML has made of it already.

Each raises ValueError, whose message says what is accepted and never repeats a secret.
"""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from legacy_queue.domain.credentials import Client
from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.domain.scopes import is_scope

LOG_FORMATS = ("auto", "text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHORTEST_SAS = timedelta(minutes=6)


def without_secrets(text: str) -> str:
    """The text, a URL perhaps, fit to be shown: the password before an @ and a query are ``***``."""
    text = re.sub(r"[?#].*", "?***", text, flags=re.DOTALL)
    return re.sub(
        r"^([a-z][a-z0-9+.-]*://)?([^:/@]*:)?.*@", r"\1\2***@", text, flags=re.DOTALL | re.IGNORECASE
    )


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text is accepted")
    return value


def port(value: Any) -> int:
    if not re.fullmatch(r"\d{1,5}", str(value)) or int(value) > 65535:
        raise ValueError("a port is accepted, 0 to 65535; 0 lets the system choose")
    return int(value)


def count(value: Any) -> int:
    if not re.fullmatch(r"[1-9]\d{0,2}", str(value)):
        raise ValueError("a number from 1 to 999 is accepted")
    return int(value)


def flag(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).lower() not in words:
        raise ValueError("true or false is accepted")
    return words[str(value).lower()]


def duration(value: Any) -> timedelta:
    match = re.fullmatch(r"([1-9]\d{0,6})([smhd])", str(value))
    if not match:
        raise ValueError("a duration is accepted, like 20m, 6s, 1h or 2d")
    duration = timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    if duration > timedelta(days=5):
        raise ValueError("5d is the longest that is accepted, as no deadline is further away")
    return duration


def sas_life(value: Any) -> timedelta:
    life = duration(value)
    if life < _SHORTEST_SAS:
        raise ValueError("at least 6m is accepted: workers fetch new URLs 310 s before the end")
    return life


def claim_work_wait(value: Any) -> timedelta:
    wait = duration(value)
    if wait > timedelta(seconds=20):
        raise ValueError("20s is the longest that is accepted, as clients give a request up after 30 s")
    return wait


def storage(value: Any) -> str:
    if value not in ("azurite", "azure", "memory"):
        raise ValueError("azurite, azure or memory is accepted")
    return str(value)


def azurite_patches(value: Any) -> str:
    if value not in ("all", "none"):
        raise ValueError("all or none is accepted")
    return str(value)


def log_format(value: Any) -> str:
    if value not in LOG_FORMATS:
        raise ValueError("auto, text or json is accepted")
    return str(value)


def log_level(value: Any) -> str:
    if value not in LOG_LEVELS:
        raise ValueError("debug, info, warning or error is accepted")
    return str(value)


def prefix(value: Any) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9]{0,10}", str(value)):
        raise ValueError("1 to 11 of a-z and 0-9 are accepted, a letter first")
    return str(value)


def url(value: Any) -> str:
    if not re.fullmatch(r"https?://[^\s/?#{}@]+[^\s?#{}@]*", str(value)):
        raise ValueError(
            "a URL is accepted that starts with http:// or https:// and has no user, password or query"
        )
    return str(value).rstrip("/")


def amqp_url(value: Any) -> str:
    try:
        url = urlsplit(text(value))
        is_one = url.scheme in ("amqp", "amqps") and bool(url.hostname) and url.port != 0
        is_one = is_one and not url.query and not url.fragment
    except ValueError:  # whose message may hold a part of the password
        is_one = False
    if not is_one or not re.fullmatch(r"[!-~]+", value):
        raise ValueError(
            "a URL is accepted like amqp://user:password@host:5672/vhost, or with amqps://, and no query; "
            "what is special in a URL is percent-encoded in the password"
        )
    return str(value)


def word(value: Any) -> str:
    if not re.fullmatch("[!-~]+", text(value)):
        raise ValueError("printable ASCII characters are accepted, and no space")
    return str(value)


def bucket(value: Any) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", str(value)):
        raise ValueError("3 to 63 of a-z, 0-9, . and - are accepted, a letter or digit first and last")
    return str(value)


def project(value: Any) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", text(value)):
        raise ValueError("1 to 64 of a-z, A-Z, 0-9, - and _ are accepted")
    return str(value)


def _structure(value: Any) -> Any:
    """A table or list of the file, or its JSON in an option or the environment."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError("JSON is accepted here, a table or list in the file") from None


def _scopes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(is_scope(scope) for scope in value):
        raise ValueError("a list of scopes is accepted, each of printable ASCII characters")
    return tuple(value)


def clients(value: Any) -> tuple[Client, ...]:
    value = _structure(value)
    accepted = "a table is accepted for each clientId: accessToken (at least 22 characters) and scopes"
    if not isinstance(value, dict):
        raise ValueError(accepted)
    clients = []
    for client_id, one in value.items():
        if not isinstance(one, dict) or set(one) != {"accessToken", "scopes"}:
            raise ValueError(f"client {client_id!r}: {accepted}")
        token = one["accessToken"]
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]{22,128}", token):
            raise ValueError(
                f"client {client_id!r}: its accessToken must be 22 to 128 printable ASCII characters"
            )
        if not re.fullmatch(r"[A-Za-z0-9!@/:.+|_-]+", client_id):
            raise ValueError(f"client {client_id!r}: letters, digits and @/:.+|_- are accepted in a clientId")
        clients.append(Client(client_id, token, _scopes(one["scopes"])))
    return tuple(clients)


def roles(value: Any) -> Mapping[str, tuple[str, ...]]:
    value = _structure(value)
    if not isinstance(value, dict):
        raise ValueError("a table is accepted: a list of scopes for each role")
    return {role: _scopes(scopes) for role, scopes in value.items()}


def secrets(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and not value.startswith("["):
        value = [one for one in value.split(",") if one]
    value = _structure(value)
    if not isinstance(value, list) or not all(is_secret(one) for one in value):
        raise ValueError(
            "a list of secrets is accepted, or text with commas between them, each of 22 printable ASCII "
            "characters or more and no space: the first signs, all verify"
        )
    return tuple(value)


def is_secret(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[!-~]{22,}", value) is not None


def policies(value: Any) -> Mapping[str, str]:
    value = _structure(value)
    accepted = 'a table is accepted: "provisionerId/workerType" = "optional" or "required"'
    if not isinstance(value, dict):
        raise ValueError(accepted)
    for name, policy in value.items():
        if not re.fullmatch(f"{IDENTIFIER}/{IDENTIFIER}", name) or policy not in ("optional", "required"):
            raise ValueError(f"{name!r} = {policy!r}: {accepted}")
    return dict(value)


def path(value: Any) -> Path:
    try:
        return Path(text(value)).expanduser()
    except RuntimeError:
        raise ValueError("a path is accepted, and there is no such home directory") from None
