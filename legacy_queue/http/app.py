"""The Flask application: routes from the declarations, and one place that renders an error."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from urllib.parse import unquote

import structlog
from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.errors import (
    AuthenticationFailed,
    InputValidationError,
    InvalidRequestArguments,
    MalformedPayload,
    QueueError,
    ResourceNotFound,
)
from legacy_queue.domain.events import PROJECT
from legacy_queue.http import artifacts, listing, runs, tasks, work, workers
from legacy_queue.http.auth import check_escapes, raw_target, signed_request
from legacy_queue.http.bodies import MAX_BODY, parse, shown, validate
from legacy_queue.http.endpoint import PARAMETERS, Call, Caller, Endpoint, endpoint
from legacy_queue.http.error_answers import render_errors, too_large
from legacy_queue.http.event_stream import events_endpoint
from legacy_queue.http.incoming import FairBodies
from legacy_queue.http.migration import migration
from legacy_queue.http.references import api_reference, exchanges_reference
from legacy_queue.http.request_log import log_requests
from legacy_queue.http.schemas import SCHEMAS, served
from legacy_queue.http.uploads import PATH as UPLOADS
from legacy_queue.http.uploads import upload_view
from legacy_queue.ports import Clock
from legacy_queue.services import Services
from legacy_queue.services.upload_slots import UploadSlots
from legacy_queue.stores import Storage

log = structlog.get_logger()

PREFIXES = ("/v1", "/api/queue/v1")

_started = time.monotonic()


@endpoint("ping", "GET", "/ping", "Ping Server", output="ping-response")
def ping(call: Call) -> Mapping[str, Any]:
    """Answer without asking anybody: the process is alive. ``uptime`` is in seconds."""
    call.authorize()
    return {"alive": True, "uptime": round(time.monotonic() - _started, 3)}


ENDPOINTS: tuple[Endpoint, ...] = (
    ping,
    *tasks.ENDPOINTS,
    *listing.ENDPOINTS,
    *runs.ENDPOINTS,
    *work.ENDPOINTS,
    *artifacts.ENDPOINTS,
    *workers.ENDPOINTS,
)


@dataclass(frozen=True)
class Backend:
    """What the application is put together from. Once ``stopping`` is set, its event streams end.

    What is uploaded takes one of the ``upload_slots``.
    """

    services: Services
    authenticator: Authenticator
    storage: Storage
    clock: Clock
    root_url: str
    trusts_proxy: bool = False
    project: str = PROJECT
    stopping: Event = field(default_factory=Event)
    upload_slots: UploadSlots = field(default_factory=UploadSlots)


class _RawPath:
    """Routes by the path as it was sent: ``a%2Fb`` is one segment, which WSGI's own PATH_INFO hides."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ["PATH_INFO"] = raw_target(environ).partition("?")[0]
        return self._app(environ, start_response)


class _ArtifactName(BaseConverter):
    """All the rest of a path, slashes and all: a name is data."""

    regex = ".*"
    part_isolating = False


def create_app(backend: Backend) -> Flask:
    """The queue's HTTP interface, under both prefixes; ``/ready``, references and schemas beside it."""
    app = Flask("legacy_queue", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY + 1  # a longer chunked body is cut there, and seen
    app.url_map.merge_slashes = False
    app.url_map.converters["artifact"] = _ArtifactName
    app.wsgi_app = _RawPath(FairBodies(app.wsgi_app))  # type: ignore[method-assign]
    log_requests(app)
    by_rule = {prefix + one.name: one for one in ENDPOINTS for prefix in PREFIXES}
    for declared in ENDPOINTS:
        for prefix in PREFIXES:
            app.add_url_rule(
                prefix + declared.route.replace("<name>", "<artifact:name>"),
                endpoint=prefix + declared.name,
                view_func=_view(declared, backend),
                methods=[declared.method],
                provide_automatic_options=False,
            )
    events = events_endpoint(backend.project, backend.clock, backend.stopping, backend.trusts_proxy)
    for beside in (events, migration):
        by_rule[beside.name] = beside
        app.add_url_rule(
            beside.route,
            beside.name,
            _view(beside, backend),
            methods=[beside.method],
            provide_automatic_options=False,
        )
    app.add_url_rule(
        f"{UPLOADS}/<ticket>",
        "upload",
        upload_view(backend.services, backend.upload_slots),
        methods=["PUT"],
        provide_automatic_options=False,
    )
    app.add_url_rule("/ready", "ready", view_func=lambda: _ready(backend))
    app.add_url_rule(
        "/references/queue/v1/api.json", "reference", lambda: api_reference(ENDPOINTS, backend.root_url)
    )
    app.add_url_rule(
        "/references/queue/v1/exchanges.json", "exchanges", lambda: exchanges_reference(backend.project)
    )
    app.add_url_rule("/schemas/queue/v1/<name>.json", "schema", lambda name: _schema(name, backend))
    app.before_request(lambda: _check_target(by_rule))
    render_errors(app, backend.clock)
    return app


def _view(declared: Endpoint, backend: Backend) -> Callable[..., Any]:
    """Raw path -> parameters checked -> Hawk -> body validated -> handler, which checks the scopes first.

    A change without credentials is refused before its body is read as JSON: no stranger makes that work.
    """

    def view(**segments: str) -> Any:
        params = {name: unquote(segment) for name, segment in segments.items()}
        query = _query(declared)
        for name, value in (*params.items(), *query.items()):
            if not re.fullmatch(PARAMETERS[name], value):
                raise InvalidRequestArguments(f"{name} is {value[:200]!r}: it must match {PARAMETERS[name]}")
        g.call = declared, params
        raw = _body()
        caller = _caller(raw, backend)
        g.client_id = caller.identity and caller.identity.client_id
        body = None
        if declared.method != "GET":
            caller.require_credentials(declared)
            body = parse(raw, request.headers.get("content-type", ""))
            g.payload = shown(raw, body)
            _check_body(declared, body)
        answer = declared.handler(Call(declared, params, query, body, caller, backend.services))
        return answer if isinstance(answer, Response) else dict(answer)

    return view


def _check_target(declared: Mapping[str, Endpoint]) -> None:
    """Until its parameters are checked, an error shows no more of them than their beginning."""
    if called := declared.get(request.endpoint or ""):
        g.call = called, {name: unquote(value)[:200] for name, value in (request.view_args or {}).items()}
    if not request.blueprint:  # whose protocol is Azure's
        check_escapes(raw_target(request.environ))


def _caller(raw: bytes, backend: Backend) -> Caller:
    try:
        signed = signed_request(request, raw, backend.trusts_proxy)
        return Caller(backend.authenticator.authenticate(signed, backend.clock.now()))
    except AuthenticationFailed as failure:
        return Caller(None, failure)


def _query(declared: Endpoint) -> dict[str, str]:
    """The query's parameters, each given once and known to the endpoint; a bewit is not one of them."""
    given = {name: values for name, values in request.args.lists() if name != "bewit"}
    for name, values in sorted(given.items()):
        if name not in declared.query:
            raise InvalidRequestArguments(f"{declared.name} takes no query parameter {name[:200]!r}")
        if len(values) > 1:
            raise InvalidRequestArguments(
                f"{name} is given {len(values)} times in the query: once is accepted"
            )
    return {name: values[0] for name, values in given.items()}


def _body() -> bytes:
    try:
        raw = request.get_data(cache=False)
    except (HTTPException, QueueError):
        raise
    except Exception as error:  # noqa: BLE001  gunicorn's, for chunks that are none, or a connection that ends
        raise MalformedPayload(f"the body cannot be read ({type(error).__name__})") from None
    announced = request.content_length or 0
    if max(len(raw), announced) > MAX_BODY:
        raise too_large()
    if len(raw) < announced:
        raise MalformedPayload(f"the body ended after {len(raw)} of {announced} bytes")
    return raw


def _check_body(declared: Endpoint, body: Any) -> None:
    if declared.input is None:
        if body not in (None, {}):
            raise InputValidationError(f"{declared.name} takes no body: send none, or {{}}")
    elif body is not None or not declared.input_optional:
        validate(body, declared.input)


def _ready(backend: Backend) -> Response:
    backend.storage.account.check()
    return Response('{"ready": true}', content_type="application/json")


def _schema(name: str, backend: Backend) -> Any:
    if name not in SCHEMAS:
        raise ResourceNotFound(f"there is no schema {name[:100]!r}; there are {', '.join(sorted(SCHEMAS))}")
    return served(name, backend.root_url)
