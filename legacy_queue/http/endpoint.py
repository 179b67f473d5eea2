"""An endpoint as data, and a call of it. Routing, checks and the reference are derived from the data."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Concatenate, ParamSpec

import structlog
from flask import Response

from legacy_queue.domain.authentication import Identity
from legacy_queue.domain.errors import AuthenticationFailed, InsufficientScopes
from legacy_queue.domain.formats_of_2018 import SINCE_2018, TODAY, reshaped
from legacy_queue.domain.scopes import Expression, missing, templates
from legacy_queue.domain.task import Task, Worker
from legacy_queue.http.request_log import Environ, record_of
from legacy_queue.http.site import Site
from legacy_queue.stores import Group

log = structlog.get_logger()

Reply = Mapping[str, Any] | Response  # JSON, or any other answer

P = ParamSpec("P")  # the fields of an endpoint behind its handler

_PARAMETER = re.compile(r"<(\w+)>")


@dataclass
class Call:
    """One request to an endpoint, with checked parameters and a validated body; ``environ`` is that of WSGI.

    ``is_todays``: the answer has today's shape, else that of 2018. Trust the ``identity`` only once the call
    is authorized. ``failure`` says why the credentials are invalid, if they are. ``url_life`` is how long the
    signed URLs of pollTaskUrls are good, if a fault says that; a negative one has passed.
    """

    endpoint: "Endpoint"
    params: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    environ: Environ
    is_todays: bool
    identity: Identity | None
    failure: AuthenticationFailed | None
    _site: Site
    url_life: timedelta | None = None

    @property
    def client_id(self) -> str:
        """The client, "" without credentials."""
        return self.identity.client_id if self.identity else ""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The caller's scopes, expanded; () without credentials."""
        return self.identity.scopes if self.identity else ()

    @property
    def task_id(self) -> str:
        return self.params["taskId"]

    @property
    def run_id(self) -> int:
        return int(self.params["runId"])

    @property
    def pool(self) -> tuple[str, str]:
        """The provisionerId and the workerType."""
        return self.params["provisionerId"], self.params["workerType"]

    def shaped(self, answer: Any) -> Any:
        """The answer, or a page with one item of it, in the shape of the call's generation."""
        differences = TODAY if self.is_todays else SINCE_2018
        difference = differences.get(self.endpoint.output or "")
        return reshaped(answer, difference) if difference else answer

    def task(self) -> Task:
        """The task, to fill the scopes. It may be cached: the definition is current, the runs may not be."""
        return self._noted(self._site.services.tasks.recall(self.task_id))

    def task_now(self) -> Task:
        """The task as stored now, to fill the scopes."""
        return self._noted(self._site.services.tasks.load(self.task_id))

    def _noted(self, task: Task) -> Task:
        record_of(self.environ).queue = task.work_queue
        return task

    def group(self) -> Group:
        """The task group, to fill the scopes; raises ResourceNotFound."""
        return self._site.services.groups.load(self.params["taskGroupId"])

    def of(self, target: "Endpoint", body: Any = None) -> "Call":
        """The caller's call of another endpoint."""
        return replace(self, endpoint=target, body=body)

    def authorize(self, **fields: str | list[str] | tuple[str, ...]) -> Site:
        """The services, if the caller has the endpoint's scopes; else raises InsufficientScopes.

        A handler gets at them in no other way, so without the scopes it writes nothing. ``fields`` and the
        parameters of the route fill the scopes. Invalid credentials raise AuthenticationFailed; they are
        ignored if no scopes of the caller's own are needed, as by the original queue.
        """
        wanted = self.endpoint.scopes
        if wanted is not None:
            filled = {**self.params, **fields}
            lacking = missing(self.scopes, wanted, filled)
            if lacking is not None and self._site.anonymous:
                lacking = missing((*self.scopes, *self._site.anonymous), wanted, filled)
                record_of(self.environ).is_allowed_to_all = lacking is None
            if lacking is not None:
                raise self.failure or self.endpoint.refusal(self.identity, lacking)
        if self.failure:
            log.info(
                "authentication-ignored",
                request_id=record_of(self.environ).request_id,
                endpoint=self.endpoint.name,
                client_id=self.failure.client_id,
                reason=self.failure.reason,
            )
        return self._site

    def authorize_holder(self) -> Site:
        """As ``authorize``; the worker that has claimed the run, if any, fills the scopes too.

        Scopes that name this run need no worker. For others the worker is read from storage: the cache may
        have a claim that was released. Raises ResourceNotFound for an unknown run.
        """
        if self.run_id < len(self.task().runs):
            with suppress(InsufficientScopes):
                return self.authorize(workerGroup="", workerId="")
        worker = self.task_now().run(self.run_id).worker or Worker("", "")
        return self.authorize(workerGroup=worker.worker_group, workerId=worker.worker_id)


Handler = Callable[[Call], Reply]


@dataclass(frozen=True)
class Endpoint:
    """``query`` names parameters, ``input`` and ``output`` schemas. Without ``scopes`` it needs none.

    ``task_queue_route`` is that of later clients: ``<taskQueueId>``, one escaped segment, replaces
    ``<provisionerId>/<workerType>``. If two endpoints have the same method and route, ``by_body`` of the
    first chooses the endpoint for a valid body. ``disabled`` says why a site does not serve it, "" if it
    does. A browser that is signed in may call it without credentials if it ``takes_cookies``.
    """

    name: str
    description: str
    handler: Handler = field(repr=False)
    method: str
    route: str
    title: str
    scopes: "Expression | None" = None
    query: tuple[str, ...] = ()
    input: str | None = None
    output: str | None = None
    input_optional: bool = False
    stability: str = "stable"
    service: str = "queue"  # its name is in the prefix
    has_prefix: bool = True  # /v1 and /api/<service>/v1 are before its routes
    is_recorded: bool = True  # in the journal
    disabled: Callable[[Site], str] = field(default=lambda _: "", repr=False)
    task_queue_route: str | None = None
    takes_cookies: bool = False
    by_body: "Callable[[Any], Endpoint] | None" = field(default=None, repr=False)

    @cached_property
    def scopes_named(self) -> tuple[str, ...]:
        """The scopes, as declared."""
        return () if self.scopes is None else templates(self.scopes)

    @cached_property
    def takes_any_credentials(self) -> bool:
        """Whether it needs credentials, but no scope: AllOf(())."""
        return self.scopes is not None and not self.scopes_named

    @cached_property
    def args(self) -> list[str]:
        """The parameters of the route, in order."""
        return _PARAMETER.findall(self.route)

    @property
    def routes(self) -> list[str]:
        return [self.route, self.task_queue_route] if self.task_queue_route else [self.route]

    def refusal(self, identity: Identity | None, lacking: str) -> InsufficientScopes:
        """The error for a caller that lacks these scopes."""
        caller = identity.log_name if identity else "a request without credentials"
        return InsufficientScopes(f"{caller} may not call {self.name}: it lacks {lacking}")


def _declared_by(
    make: Callable[Concatenate[str, str, Handler, P], Endpoint],
) -> Callable[P, Callable[[Handler], Endpoint]]:
    """So a declaration has the parameters of Endpoint, and mypy checks them."""

    def declare(*fields: P.args, **more: P.kwargs) -> Callable[[Handler], Endpoint]:
        def declared(handler: Handler) -> Endpoint:
            first, *words = handler.__name__.split("_")
            name = first + "".join(map(str.capitalize, words))
            return make(name, " ".join((handler.__doc__ or "").split()), handler, *fields, **more)

        return declared

    return declare


# Declares the function below as the handler of an endpoint. ``claim_task`` is the handler of claimTask; its
# docstring is the description.
endpoint = _declared_by(Endpoint)
