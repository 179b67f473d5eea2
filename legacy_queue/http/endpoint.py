"""An endpoint as data, and a call of it: from these come routing, checks, and the reference."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from flask import Response

from legacy_queue.domain.authentication import Identity
from legacy_queue.domain.errors import AuthenticationFailed, InsufficientScopes
from legacy_queue.domain.ids import IDENTIFIER, RUN_ID, TASK_ID
from legacy_queue.domain.scopes import Expression, missing, reference, render
from legacy_queue.domain.task import Task, Worker
from legacy_queue.http.request_log import Environ, record_of
from legacy_queue.services import Services

log = structlog.get_logger()

# as AMQP 0-9-1 has it, but for a * or # that is only part of a word: there it would stand for itself
_TOPIC_PATTERN = r"(?=[ -~]{1,255}\Z)(?:[*#]|[^.*#]*)(?:\.(?:[*#]|[^.*#]*))*"

# the parameters of routes and of queries, and what each must match
PARAMETERS = {
    "taskId": TASK_ID,
    "taskGroupId": TASK_ID,
    "runId": RUN_ID,
    "provisionerId": IDENTIFIER,
    "workerType": IDENTIFIER,
    "workerGroup": IDENTIFIER,
    "workerId": IDENTIFIER,
    "quarantined": r"true|false",
    "name": r"[ -~]{1,1024}",
    "continuationToken": r"[A-Za-z0-9_-]{0,3500}",  # one may hold the name of an artifact, escaped
    "limit": r"(?:1000|[1-9][0-9]{0,2})",
    "exchange": r"[ -~]{1,255}",
    "routingKey": _TOPIC_PATTERN,
    "since": r"[ -~]{0,20}",
    "lastEventId": r"[!-~]{1,255}",
}


@dataclass(frozen=True)
class Caller:
    """Who sent a request: an identity, or nobody; then ``failure`` says that credentials were not valid."""

    identity: Identity | None
    failure: AuthenticationFailed | None = None

    def require_credentials(self, endpoint: "Endpoint") -> None:
        """Raises AuthenticationFailed or InsufficientScopes for an endpoint that needs scopes."""
        if endpoint.scopes is not None and self.identity is None:
            raise self.failure or _insufficient(self, endpoint, json.dumps(reference(endpoint.scopes)))

    @property
    def client_id(self) -> str | None:
        return self.identity.client_id if self.identity else None

    @property
    def scopes(self) -> tuple[str, ...]:
        return self.identity.scopes if self.identity else ()

    @property
    def log_name(self) -> str:
        """Fit for a log."""
        return self.identity.log_name if self.identity else "a request without credentials"


class Call:
    """One request to an endpoint: its parameters, its query, its body (validated), who sent it, and WSGI's
    ``environ``.
    """

    def __init__(
        self,
        endpoint: "Endpoint",
        params: Mapping[str, str],
        query: Mapping[str, str],
        body: Any,
        caller: Caller,
        services: Services,
        environ: Environ,
    ) -> None:
        self._endpoint, self._caller, self._services = endpoint, caller, services
        self.params, self.query, self.body, self.environ = params, query, body, environ

    @property
    def name(self) -> str:
        """The endpoint's."""
        return self._endpoint.name

    @property
    def client_id(self) -> str:
        """Who sent it, "" without credentials; believed once the call is authorized."""
        return self._caller.client_id or ""

    @property
    def task_id(self) -> str:
        return self.params["taskId"]

    @property
    def run_id(self) -> int:
        return int(self.params["runId"])

    def task(self) -> Task:
        """The task, to fill the scopes from: its definition is right, its runs may be old."""
        return self._services.tasks.recall(self.task_id)

    def authorize(self, **fields: str | list[str] | tuple[str, ...]) -> Services:
        """The services, once the caller's scopes satisfy the endpoint's; raises InsufficientScopes.

        ``fields`` fill the scopes beside the parameters of the route. Credentials that are not valid are no
        matter where none are needed, as the original has it, else they are an AuthenticationFailed.
        """
        failure = self._caller.failure
        if self._endpoint.scopes is not None:
            needed = render(self._endpoint.scopes, {**self.params, **fields})
            lacking = missing(self._caller.scopes, needed)
            if lacking is not None:
                raise failure or _insufficient(self._caller, self._endpoint, lacking)
        if failure:
            log.info(
                "authentication-ignored",
                request_id=record_of(self.environ).request_id,
                endpoint=self._endpoint.name,
                client_id=failure.client_id,
                reason=failure.reason,
            )
        return self._services

    def authorize_holder(self) -> Services:
        """As ``authorize``, the scopes filled with the worker that has claimed the run, if one has.

        Where none has, no scope that names a worker is enough.
        Who has no scope for this very run must be that worker now: what this process remembers may be a claim
        that was taken back. Raises ResourceNotFound where there is no such run.
        """
        if self.run_id < len(self.task().runs):
            with suppress(InsufficientScopes):
                return self._authorize_as(None)
        return self._authorize_as(self._services.tasks.load(self.task_id).run(self.run_id).worker)

    def _authorize_as(self, worker: Worker | None) -> Services:
        worker = worker or Worker("", "")
        return self.authorize(workerGroup=worker.worker_group, workerId=worker.worker_id)


def _insufficient(caller: Caller, endpoint: "Endpoint", lacking: str) -> InsufficientScopes:
    return InsufficientScopes(f"{caller.log_name} may not {endpoint.name}: it lacks {lacking}")


Handler = Callable[[Call], Mapping[str, Any] | Response]


@dataclass(frozen=True)
class Endpoint:
    """``query`` names parameters, ``input`` and ``output`` schemas. ``scopes`` of None: anybody may."""

    name: str
    method: str
    route: str
    title: str
    handler: Handler = field(repr=False)
    scopes: "Expression | None" = None
    query: tuple[str, ...] = ()
    input: str | None = None
    output: str | None = None
    input_optional: bool = False
    stability: str = "stable"

    @property
    def description(self) -> str:
        """The handler's docstring."""
        return " ".join((self.handler.__doc__ or "").split())


def endpoint(name: str, method: str, route: str, title: str, **more: Any) -> Callable[[Handler], Endpoint]:
    """Declare the function below as the handler of this endpoint."""
    return lambda handler: Endpoint(name, method, route, title, handler, **more)
