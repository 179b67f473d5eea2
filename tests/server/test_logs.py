"""The log on standard error is JSON, or text on a terminal. Libraries' entries have the same form."""

import json
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from legacy_queue.server.logs import Text

LOGGED = """
import logging
import warnings
import structlog
from legacy_queue.server.logs import log_to_standard_error

log_to_standard_error()
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


@pytest.mark.processes
def test_if_standard_error_is_not_a_terminal_each_log_line_is_json() -> None:
    command = [sys.executable, "-c", LOGGED]
    errors = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [(line["level"], line["event"]) for line in lines if line.get("logger") != "py.warnings"] == [
        ("info", "request"),
        ("warning", "azurite-restarted"),
        ("warning", "something went wrong"),
        ("error", "internal-error"),
    ]
    [warned] = [line["event"] for line in lines if line.get("logger") == "py.warnings"]
    assert "UserWarning: an old name" in warned
    assert "ValueError: a bug" in lines[-1]["exception"]
    assert lines[0]["timestamp"].endswith("Z")


def test_on_a_terminal_a_log_line_is_readable_and_its_control_characters_are_escaped() -> None:
    def rendered(event: str, level: str, **fields: Any) -> str:
        now = datetime(2018, 3, 4, 12, 34, 56, 789_000)  # noqa: DTZ001  the local time
        return Text(False, lambda: now)(None, "", {"event": event, "level": level, **fields})

    request = {"method": "PUT", "path": "/\x1b[31m\x9b", "endpoint": "createTask", "request_id": "an-id"}
    refusal = {"status": 401, "code": "AuthenticationFailed", "ms": 12.3, "reason": "no such client"}
    assert rendered("request", "info", **request, **refusal) == (
        r"12:34:56.789 info    PUT /\x1b[31m\x9b createTask 401 AuthenticationFailed 12 ms "
        'reason="no such client" req=an-id'
    )
    shown = rendered("internal-error", "error", exception="Traceback:\n\tValueError: \x1b]0;x\x07")
    assert shown == "12:34:56.789 error   internal-error\nTraceback:\n\tValueError: \\x1b]0;x\\x07"
