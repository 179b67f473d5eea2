"""The log on standard error: JSON, or text at a terminal, also of libraries."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from legacy_queue.server.logs import Text

ALL = """
import logging, sys, warnings
import structlog
from legacy_queue.server.logs import log_to_standard_error

log_to_standard_error(*sys.argv[1:])
log = structlog.get_logger()
log.debug("chatter")
log.info("request", method="GET", path="/v1/ping", endpoint="ping", status=200, ms=0.4, request_id="an-id")
log.warning("azurite-restarted")
logging.getLogger("a.library").info("not shown")
logging.getLogger("a.library").warning("%s went wrong", "something")
warnings.warn("an old name")
try:
    raise ValueError("a bug")
except ValueError as error:
    log.error("internal-error", exc_info=error)
"""
NOW = datetime(2018, 3, 4, 12, 34, 56, 789_000)  # noqa: DTZ001  what the wall clock says
REQUEST = {
    "method": "PUT",
    "path": "/v1/task/Abc",
    "endpoint": "createTask",
    "status": 200,
    "client_id": "development",
    "request_id": "an-id",
    "ms": 12.3,
}


def logged(*options: str) -> str:
    command = [sys.executable, "-c", ALL, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def rendered(event: str, level: str = "info", colours: bool = False, **fields: Any) -> str:
    return Text(colours, lambda: NOW)(None, "", {"event": event, "level": level, **fields})


@pytest.mark.processes
def test_each_line_is_json_when_standard_error_is_no_terminal() -> None:
    lines = [json.loads(line) for line in logged().splitlines()]
    assert [(line["level"], line["event"]) for line in lines if line.get("logger") != "py.warnings"] == [
        ("info", "request"),
        ("warning", "azurite-restarted"),
        ("warning", "something went wrong"),
        ("error", "internal-error"),
    ]
    [warned] = [line["event"] for line in lines if line.get("logger") == "py.warnings"]
    assert "UserWarning: an old name" in warned
    assert "ValueError: a bug" in lines[-1]["exception"]
    assert abs((datetime.fromisoformat(lines[0]["timestamp"]) - datetime.now(UTC)).total_seconds()) < 3600


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "PUT /v1/task/Abc createTask 200 12 ms development req=an-id"),
        (
            {"status": 401, "code": "AuthenticationFailed", "reason": "no such client", "client_id": None},
            'PUT /v1/task/Abc createTask 401 AuthenticationFailed 12 ms reason="no such client" req=an-id',
        ),
        ({"path": "/\x1b[31m\x9b"}, r"PUT /\x1b[31m\x9b createTask 200 12 ms development req=an-id"),
    ],
)
def test_a_request_is_a_line_for_a_person(changes: dict[str, Any], line: str) -> None:
    fields = {name: value for name, value in {**REQUEST, **changes}.items() if value is not None}
    assert rendered("request", **fields) == f"12:34:56.789 info    {line}"


def test_a_traceback_follows_its_event_with_control_characters_escaped() -> None:
    shown = rendered("internal-error", "error", exception="Traceback:\n\tValueError: \x1b]0;x\x07")
    assert shown == "12:34:56.789 error   internal-error\nTraceback:\n\tValueError: \\x1b]0;x\\x07"
