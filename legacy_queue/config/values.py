"""The types of the settings' values, which are read from text and from the values of TOML."""

import ipaddress
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.hosts import Network
from legacy_queue.domain.ids import TASK_QUEUE_ID
from legacy_queue.domain.scopes import OPEN_READS, READS, covers, is_scope
from legacy_queue.domain.times import parse_duration

_LABEL = "[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?"
_HOST = "a host name or an IP address, or several, without port and wildcard"
_NETWORK = "addresses or networks of proxies, like 127.0.0.1 or 10.0.0.0/8"
_ORIGIN = "auto, none, *, or origins like https://tools.example.com, without a path"
Parse = Callable[[Any], Any]


class Value(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no argument for it
    """A type of values. ``words`` are all of them, if they are few. Options of ``multiple`` may be repeated.

    ``parse`` raises ValueError: its message says what was expected, and never repeats a secret.
    """

    name = "value"
    envvar_list_splitter = ","

    def __init__(self, parse: Parse, words: Sequence[str] = (), multiple: bool = False) -> None:
        self.parse = parse
        self.words = words
        self.multiple = multiple

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value)
        except ValueError as error:
            said = str(error)
            self.fail(said if repr(value) in said else f"{value!r}: {said}", param, ctx)


def without_secrets(text: str) -> str:
    """The text, such as a URL, with ``***`` for the password before an @ and for the query."""
    text = re.sub(r"[?#].*", "?***", text, flags=re.DOTALL)
    return re.sub(
        r"^([a-z][a-z0-9+.-]*://)?([^:/@]*:)?.*@", r"\1\2***@", text, flags=re.DOTALL | re.IGNORECASE
    )


def matching(pattern: str, expected: str, read: Callable[[str], Any] = str) -> Value:
    """The type of text that the whole pattern matches; if ``read`` is int, also of an int of TOML."""

    def parse(value: Any) -> Any:
        if type(value) not in (str, read) or not re.fullmatch(pattern, str(value), re.DOTALL):
            raise ValueError(f"expected {expected}")
        return read(value)

    return Value(parse)


def one_of(*words: str) -> Value:
    return Value(matching("|".join(words), f"{', '.join(words[:-1])} or {words[-1]}").parse, words)


def _duration(
    expected: str, lowest: timedelta = timedelta(seconds=1), highest: timedelta = timedelta(days=5)
) -> Value:
    def parse(value: Any) -> timedelta:
        try:
            duration = parse_duration(str(value))
            if duration.microseconds:
                raise ValueError
        except ValueError:
            raise ValueError("expected a duration of whole seconds, like 20m, 3m31s, 1h or 2d") from None
        if not lowest <= duration <= highest:
            raise ValueError(f"expected {expected}")
        return duration

    return Value(parse)


def _url(scheme: str, expected: str) -> Value:
    pattern = rf"{scheme}://[^\s/?#{{}}@]+[^\s?#{{}}@]*"
    return matching(pattern, f"a URL {expected}", lambda text: text.rstrip("/"))


text = matching(".+", "text")
count = matching(r"[1-9]\d{0,2}", "a number from 1 to 999", int)
duration = _duration("at most 5d: no deadline is later")
sas_life = _duration("6m to 5d: workers fetch new URLs 310 s before the end", timedelta(minutes=6))
claim_work_wait = _duration("0s to 20s: clients give up after 30 s", timedelta(0), timedelta(seconds=20))
prefix = matching("[a-z][a-z0-9]{0,10}", "1 to 11 of a-z and 0-9, a letter first")
project = matching("[a-zA-Z0-9_-]{1,64}", "1 to 64 of a-z, A-Z, 0-9, - and _")
url = _url("https?", "that starts with http:// or https:// and has no user, password or query")
azure_url = _url("https", "that starts with https:// and has no query: tokens are not sent over plain HTTP")
account = matching("[a-z0-9]{3,24}", "3 to 24 of a-z and 0-9")
proxy = matching(
    r"http://[^\s/?#{}@]+/?",
    "the URL of an HTTP proxy, like http://proxy.example.com:3128, without user and password",
)


@Value
def port(value: Any) -> int:
    expected = "a port, 0 to 65535; 0 lets the system choose"
    number: int = matching(r"\d{1,5}", expected, int).parse(value)
    if number > 65535:
        raise ValueError(f"expected {expected}")
    return number


def _flag(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).lower() not in words:
        raise ValueError("expected true or false")
    return words[str(value).lower()]


flag = Value(_flag, ("true", "false"))


@Value
def amqp_url(value: Any) -> str:
    with suppress(ValueError):  # its message may hold a part of the password
        url = urlsplit(matching("[!-~]+", "").parse(value))
        is_broker = url.scheme in ("amqp", "amqps") and url.hostname and url.port != 0
        if is_broker and not url.query and not url.fragment:
            return str(value)
    raise ValueError(
        "expected a URL like amqp://user:password@host:5672/vhost, or with amqps://, and no query; "
        "special characters of a URL must be percent-encoded in the password"
    )


def duration_text(duration: timedelta) -> str:
    """The duration as text for a setting, in the largest exact unit: ``20m``."""
    seconds = int(duration.total_seconds())
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    size, unit = next((size, unit) for size, unit in units if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _structure(value: Any, kind: type[Any], expected: str) -> Any:
    """A table or list of the file; an option or a variable has it as JSON."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError("expected JSON here, a table or list in the file") from None
    if not isinstance(value, kind):
        raise ValueError(f"expected {expected}")
    return value


def _scopes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(is_scope(scope) for scope in value):
        raise ValueError("expected a list of scopes, each of printable ASCII characters")
    return tuple(value)


def _anonymous_scopes(value: Any) -> tuple[str, ...]:
    if value in ("reads", "none"):
        return OPEN_READS if value == "reads" else ()
    scopes = _scopes(value.split(",") if isinstance(value, str) else value)
    for scope in scopes:
        if not covers(READS, [scope]):
            raise ValueError(f"expected reads, none, or scopes to read: {', '.join(READS)}")
    return scopes


anonymous_scopes = Value(_anonymous_scopes, multiple=True)


@Value
def clients(value: Any) -> tuple[Client, ...]:
    expected = "a table for each clientId: accessToken (at least 22 characters) and scopes"
    clients = []
    for client_id, client in _structure(value, dict, expected).items():
        if not isinstance(client, dict) or set(client) != {"accessToken", "scopes"}:
            raise ValueError(f"client {client_id!r}: expected {expected}")
        token = client["accessToken"]
        if not is_secret(token) or len(token) > 128:
            raise ValueError(
                f"client {client_id!r}: expected an accessToken of 22 to 128 printable ASCII characters"
            )
        if not re.fullmatch(r"[A-Za-z0-9!@/:.+|_-]+", client_id):
            raise ValueError(f"client {client_id!r}: expected letters, digits and @/:.+|_- in a clientId")
        clients.append(Client(client_id, token, _scopes(client["scopes"])))
    return tuple(clients)


@Value
def roles(value: Any) -> Mapping[str, tuple[str, ...]]:
    table = _structure(value, dict, "a table: a list of scopes for each role")
    return {role: _scopes(scopes) for role, scopes in table.items()}


@Value
def secrets(value: Any) -> tuple[str, ...]:
    expected = (
        "a list of secrets, or text with commas between them, each of 22 printable ASCII "
        "characters or more and no space: the first one signs, any of them verifies"
    )
    if isinstance(value, str) and not value.startswith("["):
        value = [secret for secret in value.split(",") if secret]
    value = _structure(value, list, expected)
    if not all(map(is_secret, value)):
        raise ValueError(f"expected {expected}")
    return tuple(value)


def _several(read: Parse, expected: str) -> Parse:
    """A parser of a list, or of text with commas between the items."""

    def parse(value: Any) -> tuple[Any, ...]:
        items = value.split(",") if isinstance(value, str) else _structure(value, list, expected)
        return tuple(map(read, items))

    return parse


def _host(value: Any) -> str:
    name = str(value).lower()
    with suppress(ValueError):
        return str(ipaddress.ip_address(name.replace("%", "no zone")))  # a certificate has no zone
    if len(name) > 253 or not re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", name):
        raise ValueError(f"expected {_HOST}")
    return name


def _host_pattern(value: Any) -> str:
    text = str(value)
    return text if text == "*" else f"*.{_host(text[2:])}" if text.startswith("*.") else _host(text)


def _origin(value: Any) -> str:
    if not re.fullmatch(r"https?://[a-z0-9_.:\[\]-]+", str(value)):
        raise ValueError(f"expected {_ORIGIN}")
    return str(value)


def _network(value: Any) -> Network:
    with suppress(ValueError):
        return ipaddress.ip_network(str(value))
    raise ValueError(f"expected {_NETWORK}")


def _origins(value: Any) -> tuple[str, ...]:
    return (value,) if value in ("auto", "none", "*") else tuple(_several(_origin, _ORIGIN)(value))


networks = Value(_several(_network, _NETWORK), multiple=True)
tls_names = Value(_several(_host, _HOST), multiple=True)
hosts = Value(_several(_host_pattern, _HOST.replace(" and wildcard", "")), multiple=True)
origins = Value(_origins, multiple=True)


def is_secret(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[!-~]{22,}", value) is not None


@Value
def policies(value: Any) -> Mapping[str, str]:
    expected = 'a table: "provisionerId/workerType" = "optional" or "required"'
    table: dict[str, str] = _structure(value, dict, expected)
    for name, policy in table.items():
        if not re.fullmatch(TASK_QUEUE_ID, name) or policy not in ("optional", "required"):
            raise ValueError(f"{name!r} = {policy!r}: expected {expected}")
    return table


@Value
def path(value: Any) -> Path:
    try:
        return Path(text.parse(value)).expanduser()
    except RuntimeError:
        raise ValueError("expected a path: there is no such home directory") from None
