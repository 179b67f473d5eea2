"""The types of values of settings and options. Values come from text or from TOML."""

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import TASK_QUEUE_ID
from legacy_queue.domain.scopes import OPEN_READS, READS, covers, is_scope
from legacy_queue.domain.times import parse_duration

Read = Callable[[Any], Any]
_LABEL = "[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?"
# RuntimeError: JSON that is nested too deeply, and a home directory that does not exist
_WRONG = (ValueError, TypeError, RuntimeError)


class _WrongPartError(ValueError):
    """Names the part of a value that is wrong. Other errors are not shown, because they may have a secret."""


class Value(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no argument for it
    """A type of values, which ``read`` makes from text or from a value of TOML.

    ``read`` raises one of _WRONG if the value is not as ``expected``. ``words`` are the possible values, if
    they are few. If the type is ``multiple``, its option may be repeated. A help shows ``name`` in capitals.
    """

    envvar_list_splitter = ","

    def __init__(
        self,
        expected: str,
        read: Read,
        words: Sequence[str] = (),
        multiple: bool = False,
        name: str = "value",
    ) -> None:
        self.name = name
        self._expected = expected
        self._read = read
        self.words = words
        self.multiple = multiple

    def parse(self, value: Any) -> Any:
        """The parsed value. Raises ValueError, which says what was expected and never repeats a secret."""
        try:
            return self._read(value)
        except _WRONG as error:
            part = f"{error}: " if isinstance(error, _WrongPartError) else ""
            raise ValueError(f"{part}expected {self._expected}") from None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


def _expecting(expected: str, **more: Any) -> Callable[[Read], Value]:
    return lambda read: Value(expected, read, **more)


def without_secrets(text: str) -> str:
    """The text, such as a URL, with ``***`` in place of a password before an @ and of the query."""
    text = re.sub(r"[?#].*", "?***", text, flags=re.DOTALL)
    return re.sub(
        r"^([a-z][a-z0-9+.-]*://)?([^:/@]*:)?.*@", r"\1\2***@", text, flags=re.DOTALL | re.IGNORECASE
    )


def duration_text(duration: timedelta) -> str:
    """The duration as text for a setting, in the largest unit that is exact: ``20m``."""
    seconds = int(duration.total_seconds())
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    size, unit = next((size, unit) for size, unit in units if seconds % size == 0)
    return f"{seconds // size}{unit}"


def is_secret(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[!-~]{22,}", value) is not None


def _check(is_right: bool) -> None:
    if not is_right:
        raise ValueError


def matching(pattern: str, expected: str, read: Callable[[str], Any] = str, name: str = "text") -> Value:
    """The type of texts that match the whole pattern. If ``read`` is int, an int of TOML is also possible."""

    @_expecting(expected, name=name)
    def value_type(value: Any) -> Any:
        _check(type(value) in (str, read) and re.fullmatch(pattern, str(value), re.DOTALL) is not None)
        return read(value)

    return value_type


def one_of(*words: str) -> Value:
    expected = f"{', '.join(words[:-1])} or {words[-1]}"
    return Value(expected, matching("|".join(words), "").parse, words, name="word")


def number(lowest: int, highest: int | None = None) -> Value:
    """The type of the whole numbers in this range."""
    limits = f"of at least {lowest}" if highest is None else f"from {lowest} to {highest}"

    @_expecting(f"a whole number {limits}", name="n")
    def value_type(value: Any) -> int:
        found = int(matching(r"-?\d{1,18}", "", int).parse(value))
        _check(lowest <= found and (highest is None or found <= highest))
        return found

    return value_type


def _duration(lowest: str, highest: str, why: str) -> Value:
    @_expecting(
        f"a duration in whole seconds from {lowest} to {highest}, such as 20s, 3m31s or 2h ({why})",
        name="duration",
    )
    def value_type(value: Any) -> timedelta:
        duration = parse_duration(str(value))
        _check(not duration.microseconds and parse_duration(lowest) <= duration <= parse_duration(highest))
        return duration

    return value_type


def _url(scheme: str, expected: str) -> Value:
    pattern = rf"{scheme}://[^\s/?#{{}}@]+[^\s?#{{}}@]*"
    return matching(pattern, f"a URL that begins with {expected}", lambda text: text.rstrip("/"), "url")


text = matching(".+", "text")
count = matching(r"[1-9]\d{0,2}", "a whole number from 1 to 999", int, "n")
duration = _duration("1s", "5d", "every task ends within 5d")
sas_life = _duration("6m", "5d", "workers replace a URL 310 s before its end")
claim_work_wait = _duration("0s", "20s", "clients give up after 30 s")
prefix = matching("[a-z][a-z0-9]{0,10}", "1 to 11 characters of a-z and 0-9, beginning with a letter")
project = matching("[a-zA-Z0-9_-]{1,64}", "1 to 64 characters of a-z, A-Z, 0-9, - and _")
url = _url("https?", "http:// or https:// and has no user, password or query")
azure_url = _url("https", "https:// and has no query: tokens are not sent over plain HTTP")
account = matching("[a-z0-9]{3,24}", "3 to 24 characters of a-z and 0-9")
port = Value("a port from 0 to 65535; 0 lets the system choose one", number(0, 65535).parse, name="port")
proxy = matching(
    r"http://[^\s/?#{}@]+/?",
    "the URL of an HTTP proxy, such as http://proxy.example.com:3128, without user and password",
    name="url",
)


@_expecting("a path, in which ~ is a home directory that exists", name="path")
def path(value: Any) -> Path:
    return Path(text.parse(value)).expanduser()


@_expecting("true or false", words=("true", "false"))
def flag(value: Any) -> bool:
    word = str(value).lower()
    _check(word in ("true", "1", "yes", "false", "0", "no"))
    return word in ("true", "1", "yes")


@_expecting(
    "a URL such as amqp://user:password@host:5672/vhost, with amqp:// or amqps:// and without a query; "
    "in the password, percent-encode the special characters of URLs",
    name="url",
)
def amqp_url(value: Any) -> str:
    url = urlsplit(matching("[!-~]+", "").parse(value))
    _check(url.scheme in ("amqp", "amqps") and bool(url.hostname) and url.port != 0)
    _check(not url.query and not url.fragment)
    return str(value)


def _structure(value: Any, kind: type[Any]) -> Any:
    """A table or list of the settings file. In an option or a variable it is JSON."""
    value = json.loads(value) if isinstance(value, str) else value
    _check(isinstance(value, kind))
    return value


def _scopes(value: Any) -> tuple[str, ...]:
    _check(isinstance(value, list) and all(is_scope(scope) for scope in value))
    return tuple(value)


@_expecting(f"reads, none, or scopes that only read: {', '.join(READS)}", multiple=True)
def anonymous_scopes(value: Any) -> tuple[str, ...]:
    if value in ("reads", "none"):
        return OPEN_READS if value == "reads" else ()
    scopes = _scopes(value.split(",") if isinstance(value, str) else value)
    _check(all(covers(READS, [scope]) for scope in scopes))
    return scopes


def _items(value: Any, kind: str, read: Callable[[str, Any], Any]) -> Iterator[Any]:
    """The result of ``read`` for each name and value of a table."""
    for name, item in _structure(value, dict).items():
        try:
            yield read(name, item)
        except _WRONG:
            raise _WrongPartError(f"{kind} {name!r}") from None


def _client(client_id: str, wire: Any) -> Client:
    _check(re.fullmatch(r"[A-Za-z0-9!@/:.+|_-]+", client_id) is not None)
    _check(isinstance(wire, dict) and set(wire) == {"accessToken", "scopes"})
    _check(is_secret(wire["accessToken"]) and len(wire["accessToken"]) <= 128)
    return Client(client_id, wire["accessToken"], _scopes(wire["scopes"]))


@_expecting(
    "a table, or JSON, that has for each clientId (letters, digits and @/:.+|_-) "
    "an accessToken of 22 to 128 printable ASCII characters, and a list of scopes",
    name="json",
)
def clients(value: Any) -> tuple[Client, ...]:
    return tuple(_items(value, "client", _client))


@_expecting("a table, or JSON, that has a list of scopes for each role", name="json")
def roles(value: Any) -> Mapping[str, tuple[str, ...]]:
    return dict(_items(value, "role", lambda role, scopes: (role, _scopes(scopes))))


def _policy(pool: str, policy: Any) -> tuple[str, str]:
    _check(re.fullmatch(TASK_QUEUE_ID, pool) is not None and policy in ("optional", "required"))
    return pool, policy


@_expecting(
    'a table, or JSON, that has "optional" or "required" for each "provisionerId/workerType"', name="json"
)
def policies(value: Any) -> Mapping[str, str]:
    return dict(_items(value, "pool", _policy))


@_expecting(
    "a list of secrets, or text with commas between them. Each has at least 22 printable ASCII characters "
    "and no space. The first one signs, any of them verifies",
    name="list",
)
def secrets(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and not value.startswith("["):
        value = [secret for secret in value.split(",") if secret]
    value = _structure(value, list)
    _check(all(map(is_secret, value)))
    return tuple(value)


def _several(expected: str, read: Read) -> Value:
    """The type of a list, or of a text with commas between the items."""

    @_expecting(expected, multiple=True)
    def value_type(value: Any) -> tuple[Any, ...]:
        return tuple(map(read, value.split(",") if isinstance(value, str) else _structure(value, list)))

    return value_type


def _host(value: Any) -> str:
    name = str(value).lower()
    with suppress(ValueError):
        return str(ipaddress.ip_address(name.replace("%", "no zone")))  # a certificate has no zone
    _check(len(name) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", name) is not None)
    return name


def _host_pattern(value: Any) -> str:
    text = str(value)
    return text if text == "*" else f"*.{_host(text[2:])}" if text.startswith("*.") else _host(text)


tls_names = _several("host names or IP addresses, without a port or a wildcard", _host)
hosts = _several("host names or IP addresses, without a port", _host_pattern)
networks = _several(
    "addresses or networks of proxies, such as 127.0.0.1 or 10.0.0.0/8",
    lambda text: ipaddress.ip_network(str(text)),
)
_listed_origins = _several("", matching(r"https?://[a-z0-9_.:\[\]-]+", "").parse)


@_expecting("auto, none, *, or origins such as https://tools.example.com, without a path", multiple=True)
def origins(value: Any) -> tuple[str, ...]:
    return (value,) if value in ("auto", "none", "*") else tuple(_listed_origins.parse(value))
