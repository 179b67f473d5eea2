"""Everything that can be refused: a class for each code that the caller sees.

A legacy worker deletes its message on any 4xx and keeps it on a 5xx: what a retry could cure
is never a 4xx. Source: docs/explanation/http-contract.md#errors.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

_TOKEN = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9_-]{22,}")  # a slugid, or several of them
RETRY_AFTER = timedelta(seconds=2)
_MAX_LOGGED = 255  # characters of a clientId that is not known to be one


class QueueError(Exception):
    """A refusal. The message names the offending value and what would be accepted, and never holds a secret;
    ``details`` are for a program.
    """

    status = 500

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})

    @property
    def code(self) -> str:
        """The name of the error on the wire, such as ``RequestConflict``."""
        return type(self).__name__


class MalformedPayload(QueueError):
    status = 400  # the body is not JSON


class InvalidRequestArguments(QueueError):
    status = 400  # the URL or its query does not match


class InputValidationError(QueueError):
    status = 400  # the body does not match its schema


class InputError(QueueError):
    status = 400  # other bad input


class AuthenticationFailed(QueueError):
    """The credentials are not valid: the same sentence for every ``reason``, which is for a log alone and
    quotes nothing from the request. ``client_id`` is the client that the request claims to come from, ""
    where it names none; an access token in its place is not shown.
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
    status = 403  # no scope would cure it: Taskcluster's own name of that time


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


class ServiceUnavailable(QueueError):
    """Not now; ``retry_after`` says when to ask again. Nothing that was acknowledged is undone."""

    status = 503

    def __init__(self, message: str, retry_after: timedelta = RETRY_AFTER) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InjectedError(QueueError):
    """What a fault has the server answer, of that status and code."""

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message)
        self.status, self._code = status, code

    @property
    def code(self) -> str:
        return self._code
