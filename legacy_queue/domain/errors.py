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
    """A refusal. The message names the wrong value and says which values are accepted; it never has a secret.
    ``details`` are for a program, ``reason`` is for the operator.
    """

    status = 500

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = self.reason = message
        self.details = dict(details or {})
        self.code = type(self).__name__  # on the wire


class MalformedPayload(QueueError):
    status = 400  # the body is not JSON


class InvalidRequestArguments(QueueError):
    status = 400  # the URL or its query does not match


class InputValidationError(QueueError):
    status = 400  # the body does not match its schema


class InputError(QueueError):
    status = 400  # other bad input


class AuthenticationFailed(QueueError):
    """The credentials are not valid. Every ``reason`` has the same message: the reason is only for the log,
    and quotes nothing of the request. ``client_id`` is the clientId in the request, or "". An access token in
    its place is not shown.
    """

    status = 401

    def __init__(self, reason: str, client_id: str = "") -> None:
        super().__init__(
            "Authentication failed: check the credentials, when they expire, and the clock they are used by"
        )
        self.reason = reason
        named = client_id[:_MAX_LOGGED]
        self.client_id = "(looks like an access token)" if _TOKEN.fullmatch(named) else named


class AuthorizationFailed(QueueError):
    status = 403  # no scope would help: Taskcluster's own name of that time


class InsufficientScopes(AuthorizationFailed):
    pass


class ResourceNotFound(QueueError):
    status = 404


class NoMatchingMethod(QueueError):
    status = 406  # an object cannot be downloaded in any way that the caller accepts


class RequestConflict(QueueError):
    status = 409  # the state does not allow it


class ResourceExpired(QueueError):
    status = 410


class LengthRequired(QueueError):
    status = 411


class InputTooLarge(QueueError):
    status = 413


class MisdirectedRequest(QueueError):
    status = 421  # a host that is not this server's: not 403, which more scopes would cure


class ServiceUnavailable(QueueError):
    """The request can be retried after ``retry_after``."""

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
