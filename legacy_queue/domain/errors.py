"""The errors: a class for each code that a caller sees.

A legacy worker deletes its message on any 4xx and keeps it on a 5xx: so an error is never a 4xx if a retry
can succeed. Source: docs/reference/errors.md.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

_TOKEN = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9_-]{22,}")  # a slugid, or several of them
RETRY_AFTER = timedelta(seconds=2)
_MAX_LOGGED = 255  # characters of an unknown clientId


class QueueError(Exception):
    """A refusal. The message names the wrong value and says what was expected; it never has a secret.
    ``details`` are for a program, ``reason`` is for the operator.
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
    """The credentials are not valid. The message says so if their form is wrong; else only the log says why.

    A ``reason`` quotes nothing of the request. Only one that ``is_of_form`` is in the message: all others
    have the same message. ``client_id`` is the clientId in the request, or "". An access token in its place
    is not shown.
    """

    status = 401

    def __init__(self, reason: str, client_id: str = "", *, is_of_form: bool = False) -> None:
        advice = "check the credentials, when they expire, and the clock they are used by"
        super().__init__(f"Authentication failed: {reason if is_of_form else advice}")
        self.is_of_form = is_of_form
        self.reason = reason
        named = client_id[:_MAX_LOGGED]
        self.client_id = "(looks like an access token)" if _TOKEN.fullmatch(named) else named


class AuthorizationFailed(QueueError):
    """The signature of a message is wrong.

    No scope would help. Taskcluster's own name of that time.
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
    """Another worker has the run, the task is resolved, the worker is quarantined, or the like."""

    status = 409


class ResourceExpired(QueueError):
    """What the call is about has expired."""

    status = 410


class LengthRequired(QueueError):
    """An upload has no `content-length`."""

    status = 411


class InputTooLarge(QueueError):
    """The body, or what is stored of it, is over its limit."""

    status = 413


class MisdirectedRequest(QueueError):
    """The server does not answer to this `Host`: see the setting `allowed-hosts`."""

    status = 421  # a host that is not this server's: not 403, which more scopes would cure


class ServiceUnavailable(QueueError):
    """Storage or broker is away, or the server is at a limit. See `retry-after`."""

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
