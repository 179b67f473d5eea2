"""The log on standard error: a line of JSON for each event, or a line of text at a terminal.

It includes the warnings and errors of libraries. Their other messages are left out, because they might
contain secrets.
"""

import json
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import structlog
from structlog.typing import EventDict

from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.times import format_time

_STANDARD_ERROR = 2
_RED = 31
_YELLOW = 33
_GREEN = 32
_DIM = 2
_COLOURS = {"debug": _DIM, "info": _GREEN, "warning": _YELLOW, "error": _RED, "critical": _RED}
_REQUEST_WORDS = ("method", "path", "endpoint", "status", "code", "ms", "client_id")


def log_to_standard_error(form: str = "auto", level: str = "info") -> None:
    """Set up structlog and logging. ``form`` is text, json, or auto, which means text at a terminal."""
    is_terminal = os.isatty(_STANDARD_ERROR)
    is_text = form == "text" or (form == "auto" and is_terminal)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            Text(is_terminal and "NO_COLOR" not in os.environ) if is_text else _as_json,
        ],
        logger_factory=_StandardErrorLogger,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[ToStructlog()], level=logging.WARNING)
    logging.captureWarnings(True)
    # under load it would warn about every connection that its pool drops
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


class ToStructlog(logging.Handler):
    """Turns each log record of a library into an event."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record with the nearest level of structlog."""
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        structlog.get_logger().log(
            level, record.getMessage(), logger=record.name, exc_info=record.exc_info or None
        )


class _StandardErrorLogger:
    """Writes lines to standard error. If that fails, the error is ignored and the server goes on."""

    def __init__(self, *_: Any) -> None: ...

    def msg(self, line: str) -> None:
        with suppress(OSError):
            os.write(_STANDARD_ERROR, f"{line}\n".encode(errors="backslashreplace"))

    log = debug = info = warning = error = critical = exception = msg


def _as_json(_logger: object, _name: str, event: EventDict) -> str:
    event["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return to_json(event, default=_plain).decode(errors="backslashreplace")


class Text:
    """Renders an event as text: the local time, the level, the event's name, its fields."""

    def __init__(self, colours: bool, now: Callable[[], datetime] = datetime.now) -> None:
        self._colours = colours
        self._now = now

    def __call__(self, _logger: object, _name: str, event: EventDict) -> str:
        level = event.pop("level")
        name = event.pop("event")
        traceback = event.pop("exception", None)
        what = self._request(event) if name == "request" else _escaped(str(name))
        words = [
            self._coloured(f"{self._now():%H:%M:%S.%f}"[:-3], _DIM),
            self._coloured(f"{level:<7}", _COLOURS[level]),
            what,
            *(f"{name}={_value(value)}" for name, value in event.items() if value is not None),
        ]
        return " ".join(words) + (f"\n{_escaped(traceback)}" if traceback else "")

    def _request(self, event: EventDict) -> str:
        """``PUT /v1/task/T createTask 200 12 ms client``. The other fields stay in the event."""
        status = event["status"]
        ms = event["ms"]
        event["req"] = event.pop("request_id")
        event["ms"] = f"{ms:.{0 if ms >= 10 else 1}f} ms"
        words = {name: _escaped(str(event.pop(name))) for name in _REQUEST_WORDS if name in event}
        colour = _RED if status >= 500 else _YELLOW if status >= 400 else _GREEN
        return " ".join({**words, "status": self._coloured(words["status"], colour)}.values())

    def _coloured(self, text: str, colour: int) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours else text


def _value(value: object) -> str:
    if not isinstance(value, str | datetime):
        return json.dumps(value, default=_plain)
    text = _plain(value)
    is_word = text.isprintable() and re.fullmatch(r'[^ "]+', text)
    return text if is_word else json.dumps(text, ensure_ascii=not text.isprintable())


def _escaped(text: str) -> str:
    """Returns the text with control characters escaped for a terminal, except line feeds and tabs."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def _plain(value: object) -> str:
    return format_time(value) if isinstance(value, datetime) else str(value)
