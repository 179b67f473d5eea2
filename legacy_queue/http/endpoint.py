"""``Endpoint`` declares an endpoint, ``Call`` is a request to it.

Routing, the checks of a request and the reference are derived from the declarations.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from inspect import cleandoc
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

Reply = Mapping[str, Any] | Response  # a JSON object, or an answer of another kind

P = ParamSpec("P")  # the fields of an endpoint after its handler

_PARAMETER = re.compile(r"<(\w+)>")


@dataclass
class Call:
    """One request to an endpoint: its parameters are checked and its body is validated.

    ``environ`` is the WSGI environ. If ``is_todays``, the answer has today's shape, otherwise the shape of
    2018. If the credentials are invalid, ``failure`` says why: do not trust ``identity`` before ``authorize``
    has returned. If a fault changes how long the signed URLs of pollTaskUrls are valid, ``url_life`` is that
    time; URLs with a negative one have already expired.
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
        """The client that calls, or "" if it sent no credentials."""
        return self.identity.client_id if self.identity else ""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The caller's scopes, expanded, or () if it sent no credentials."""
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
        """Returns the answer in the shape that the caller's generation expects.

        ``answer`` may also be a page with one item, to measure that item.
        """
        differences = TODAY if self.is_todays else SINCE_2018
        difference = differences.get(self.endpoint.output or "")
        return reshaped(answer, difference) if difference else answer

    def task(self) -> Task:
        """The task, to fill in the scopes. Its definition is current, but its runs may be from the cache."""
        return self._noted(self._site.services.tasks.recall(self.task_id))

    def task_now(self) -> Task:
        """The task as it is stored now, to fill in the scopes."""
        return self._noted(self._site.services.tasks.load(self.task_id))

    def _noted(self, task: Task) -> Task:
        record_of(self.environ).queue = task.work_queue
        return task

    def group(self) -> Group:
        """The task group, to fill in the scopes. Raises ResourceNotFound."""
        return self._site.services.groups.load(self.params["taskGroupId"])

    def of(self, target: "Endpoint", body: Any = None) -> "Call":
        """The same request as a call of another endpoint."""
        return replace(self, endpoint=target, body=body)

    def authorize(self, **fields: str | list[str] | tuple[str, ...]) -> Site:
        """Returns the services if the caller has the endpoint's scopes. Otherwise raises InsufficientScopes.

        This is the handler's only way to the services, so it cannot write anything without the scopes.
        ``fields`` and the parameters of the route fill in the scopes. Raises AuthenticationFailed for invalid
        credentials. If the call needs no scopes of its caller, invalid credentials are ignored, as the
        original queue does.
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
        """Does the same as ``authorize``, with the worker that has claimed the run in the scopes.

        First it tries without a worker, which is enough for scopes that name the run. If that fails, it reads
        the worker from storage, because the cache may still have a released claim. Raises ResourceNotFound
        for an unknown run.
        """
        if self.run_id < len(self.task().runs):
            with suppress(InsufficientScopes):
                return self.authorize(workerGroup="", workerId="")
        worker = self.task_now().run(self.run_id).worker or Worker("", "")
        return self.authorize(workerGroup=worker.worker_group, workerId=worker.worker_id)


Handler = Callable[[Call], Reply]


@dataclass(frozen=True)
class Endpoint:
    """The declaration of an endpoint.

    ``query`` names its query parameters, ``input`` and ``output`` name schemas. If ``scopes`` is None,
    anybody may call it. Later clients use ``task_queue_route``: there one escaped segment ``<taskQueueId>``
    stands in place of ``<provisionerId>/<workerType>``. If two endpoints have the same method and route,
    ``by_body`` of the first one chooses between them by the valid body. ``disabled`` says why a site does not
    serve the endpoint; it is "" if the site does. If ``takes_cookies``, a signed-in browser may call it
    without other credentials.
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
    service: str = "queue"  # part of the prefix
    has_prefix: bool = True  # served under /v1 and /api/<service>/v1
    is_recorded: bool = True  # in the journal of requests
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
        """Whether any valid credentials are enough: ``AllOf(())`` names no scope."""
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
        if identity:
            return InsufficientScopes(f"{identity.log_name} may not call {self.name}: it lacks {lacking}")
        return InsufficientScopes(
            f"a request without credentials may not call {self.name}: sign it with the "
            f"credentials of a client. It lacks {lacking}"
        )


def _declared_by(
    make: Callable[Concatenate[str, str, Handler, P], Endpoint],
) -> Callable[P, Callable[[Handler], Endpoint]]:
    """The decorator ``endpoint``, typed so that mypy checks a declaration against the fields of Endpoint."""

    def declare(*fields: P.args, **more: P.kwargs) -> Callable[[Handler], Endpoint]:
        def declared(handler: Handler) -> Endpoint:
            first, *words = handler.__name__.split("_")
            name = first + "".join(map(str.capitalize, words))
            return make(name, cleandoc(handler.__doc__ or ""), handler, *fields, **more)

        return declared

    return declare


# Declares the function below it as the handler of an endpoint. The endpoint is named after the function
# (``claim_task`` handles claimTask), and its description is the docstring.
endpoint = _declared_by(Endpoint)
