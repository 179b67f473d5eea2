"""The errors: one class for each code that a caller sees.

A legacy worker deletes its message after a 4xx and keeps it after a 5xx. So an error must not be a 4xx if a
retry could succeed. Source: docs/reference/errors.md.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

_TOKEN = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9_-]{22,}")  # one or more slugids
RETRY_AFTER = timedelta(seconds=2)
_MAX_LOGGED = 255  # characters of an unknown clientId


class QueueError(Exception):
    """A refused call. The message names the wrong value and says what was expected. It contains no secret.

    ``details`` are for programs, ``reason`` is for the operator's log.
    """

    status = 500

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = self.reason = message
        self.details = dict(details or {})
        self.code = type(self).__name__  # on the wire


class MalformedPayload(QueueError):
    """The body is not JSON, or not `application/json`."""

    status = 400


class InvalidRequestArguments(QueueError):
    """A parameter does not match its pattern."""

    status = 400


class InputValidationError(QueueError):
    """The body does not match its schema."""

    status = 400


class InputError(QueueError):
    """Other bad input: dates, dependencies, a claim without the field that the policy `required` demands."""

    status = 400


class AuthenticationFailed(QueueError):
    """The credentials are not valid. If their form is wrong, the message says how. Else only the log says
    why.

    A ``reason`` quotes nothing of the request. It is in the message only if ``is_of_form`` is set; without
    it, all messages are the same. ``client_id`` is the clientId in the request, or "". If somebody sent an
    access token as clientId, it is not shown.
    """

    status = 401

    def __init__(self, reason: str, client_id: str = "", *, is_of_form: bool = False) -> None:
        advice = "check the credentials, when they expire, and the clock of the machine that uses them"
        super().__init__(f"Authentication failed: {reason if is_of_form else advice}")
        self.is_of_form = is_of_form
        self.reason = reason
        named = client_id[:_MAX_LOGGED]
        self.client_id = "(looks like an access token)" if _TOKEN.fullmatch(named) else named


class AuthorizationFailed(QueueError):
    """The signature of a message is wrong.

    More scopes would not help. Taskcluster used this name at that time.
    """

    status = 403


class InsufficientScopes(AuthorizationFailed):
    """The message lists the missing scopes."""


class ResourceNotFound(QueueError):
    """There is no such task, run, artifact, worker or method."""

    status = 404


class NoMatchingMethod(QueueError):
    """An `object` cannot be downloaded in any way that the caller accepts."""

    status = 406


class RequestConflict(QueueError):
    """The state does not allow the call: another worker has the run, the task is resolved, and so on."""

    status = 409


class ResourceExpired(QueueError):
    """What the call is about has expired."""

    status = 410


class LengthRequired(QueueError):
    """An upload has no `content-length`."""

    status = 411


class InputTooLarge(QueueError):
    """The body, or what would be stored of it, is larger than its limit."""

    status = 413


class MisdirectedRequest(QueueError):
    """The server does not answer to this `Host`: see the setting `allowed-hosts`."""

    status = 421  # not 403, because a client could take that for a missing scope


class ServiceUnavailable(QueueError):
    """The storage or the broker is unreachable, or the server is at a limit. Wait for `retry-after`."""

    status = 503

    def __init__(self, message: str, retry_after: timedelta = RETRY_AFTER) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InjectedError(QueueError):
    """The answer that a fault injects, with its status and code."""

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
