"""Everything that can be refused, by the code that the caller sees.

QueueError
  x MalformedPayload         400  the body is not JSON
  x InvalidRequestArguments  400  the URL or its query does not match
  x InputValidationError     400  the body does not match its schema
  x InputError               400  other bad input
  x AuthenticationFailed     401
  x AuthorizationFailed      403  a message signature that is wrong
    . InsufficientScopes     403
  x ResourceNotFound         404
  x RequestConflict          409  the state does not allow it
  x ResourceExpired          410
  x LengthRequired           411
  x InputTooLarge            413
  x ServiceUnavailable       503  a retry cures it

A legacy worker deletes its message on any 4xx and keeps it on a 5xx: what a retry could cure
is never a 4xx. Source: the table of codes in the HTTP contract (design/api.md). AuthorizationFailed
is Taskcluster's own name of that time for a 403 that no scope would cure.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

# what a slugid is, or several of them
_TOKEN = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9_-]{22,}")


class QueueError(Exception):
    """A refusal, told as a sentence for a person and as details for a program.

    The message names the offending value and what would be accepted; it never holds a secret.
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
    status = 400


class InvalidRequestArguments(QueueError):
    status = 400


class InputValidationError(QueueError):
    status = 400


class InputError(QueueError):
    status = 400


class AuthenticationFailed(QueueError):
    """The credentials are not valid. The message says that, never why.

    ``reason`` says why, for a log alone, and ``client_id`` which client the request claims to come from, ""
    where it names none. Neither is ever part of an answer, and neither holds a secret: an access token that
    was given as the clientId is not shown.
    """

    status = 401

    def __init__(self, message: str, reason: str = "", client_id: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.client_id = "(looks like an access token)" if _TOKEN.fullmatch(client_id) else client_id


class AuthorizationFailed(QueueError):
    status = 403


class InsufficientScopes(AuthorizationFailed):
    pass


class ResourceNotFound(QueueError):
    status = 404


class RequestConflict(QueueError):
    status = 409


class ResourceExpired(QueueError):
    status = 410


class LengthRequired(QueueError):
    status = 411


class InputTooLarge(QueueError):
    status = 413


class ServiceUnavailable(QueueError):
    """Not now; ``retry_after`` says when to ask again. Nothing that was acknowledged is undone."""

    status = 503

    def __init__(self, message: str, retry_after: timedelta = timedelta(seconds=2)) -> None:
        super().__init__(message)
        self.retry_after = retry_after
