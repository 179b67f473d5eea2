"""The queue of a server process. Tests call it only over HTTP."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import requests
from werkzeug.datastructures import Headers
from werkzeug.test import TestResponse
from werkzeug.wrappers import Request

from legacy_queue.domain.times import format_time
from tests.http.calls import Credentials, QueueCalls
from tests.memory_server import Message

from .processes import LONG, Server

Json = dict[str, Any]
_SECRETS = r'"accessToken": *"([^"]+)|\\"(?:seed|signature)\\": *\\"([^\\]+)|\bsig(?:nature)?=([^&"]+)'


def in_time(**ahead: float) -> str:
    return format_time(datetime.now(UTC) + timedelta(**ahead))


def secrets_in(answer: str) -> set[str]:
    """The parts of a JSON answer that must not be in any log, from credentials and signed URLs."""
    found = {part for match in re.findall(_SECRETS, answer) for part in match if part}
    return found | {unquote(part) for part in found}


class Queue(QueueCalls):
    """Calls the server, by default as its root client. No secret in an answer may be in the server's log."""

    def __init__(self, server: Server, credentials: Mapping[str, str] | None = None) -> None:
        self.server, self.root_url = server, server.root_url
        self.root = Credentials.from_wire(credentials or server.credentials)
        self.pool = {"provisionerId": "system"}

    def now(self) -> datetime:
        return datetime.now(UTC)

    def open(
        self, method: str, url: str, data: bytes, headers: dict[str, str], _: Credentials | None
    ) -> TestResponse:
        answer = requests.request(method, url, data=data, headers=headers, timeout=LONG)
        self.server.secrets.update(secrets_in(answer.text))
        status, fields = f"{answer.status_code} {answer.reason}", Headers(dict(answer.headers))
        return TestResponse([answer.content], status, fields, Request({}))

    def poll(self, poll_url: str, count: int = 32) -> list[Message]:
        messages = super().poll(poll_url, count)
        for message in messages:
            self.server.secrets.update((message.lease.receipt, message.signature))
        return messages
