"""The Flask application: routes from the declarations, and one place that renders an error."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from flask import Flask, Response, request

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.events import PROJECT
from legacy_queue.http import artifacts, listing, runs, tasks, work, workers
from legacy_queue.http.auth import check_escapes, raw_target
from legacy_queue.http.bodies import MAX_BODY
from legacy_queue.http.dispatch import Dispatcher
from legacy_queue.http.endpoint import Call, Endpoint, endpoint
from legacy_queue.http.error_answers import render_errors
from legacy_queue.http.event_stream import events_endpoint
from legacy_queue.http.incoming import FairBodies
from legacy_queue.http.migration import migration
from legacy_queue.http.references import api_reference, exchanges_reference
from legacy_queue.http.request_log import RequestLog, record_of
from legacy_queue.http.schemas import SCHEMAS, served
from legacy_queue.http.uploads import PATH as UPLOADS
from legacy_queue.http.uploads import upload_view
from legacy_queue.ports import Clock
from legacy_queue.services import Services
from legacy_queue.services.upload_slots import UploadSlots
from legacy_queue.stores import Storage

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


def create_app(backend: Backend) -> Flask:
    """The queue's HTTP interface, under both prefixes; ``/ready``, references and schemas beside it."""
    app = Flask("legacy_queue", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY + 1  # of what reads bodies without a limit of its own
    app.url_map.merge_slashes = False
    events = events_endpoint(backend.project, backend.clock, backend.stopping, backend.trusts_proxy)
    endpoints = Dispatcher(
        ENDPOINTS,
        (events, migration),
        backend.services,
        backend.authenticator,
        backend.clock,
        backend.trusts_proxy,
        app.wsgi_app,
    )
    app.wsgi_app = RequestLog(FairBodies(endpoints))  # type: ignore[method-assign]
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
    app.before_request(_check_target)
    render_errors(app, backend.clock)
    return app


def _check_target() -> None:
    record_of(request.environ).endpoint = request.endpoint
    if not request.blueprint:  # whose protocol is Azure's
        check_escapes(raw_target(request.environ))


def _ready(backend: Backend) -> Response:
    backend.storage.account.check()
    return Response('{"ready": true}', content_type="application/json")


def _schema(name: str, backend: Backend) -> Any:
    if name not in SCHEMAS:
        raise ResourceNotFound(f"there is no schema {name[:100]!r}; there are {', '.join(sorted(SCHEMAS))}")
    return served(name, backend.root_url)
