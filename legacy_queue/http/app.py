"""The Flask application: routes from the declarations, and one place that renders an error."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from flask import Flask, request

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.events import PROJECT
from legacy_queue.http import artifacts, runs, tasks, workers
from legacy_queue.http.bodies import MAX_BODY
from legacy_queue.http.dispatch import Dispatcher, check_escapes
from legacy_queue.http.endpoint import Call, Endpoint, endpoint
from legacy_queue.http.error_answers import render
from legacy_queue.http.event_stream import events_endpoint
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


@endpoint("GET", "/ping", "Ping Server", output="ping-response")
def ping(call: Call) -> Mapping[str, Any]:
    """Answer without asking anybody: the process is alive. ``uptime`` is in seconds."""
    call.authorize()
    return {"alive": True, "uptime": round(time.monotonic() - _started, 3)}


_DECLARED = [one for module in (tasks, runs, artifacts, workers) for one in vars(module).values()]
ENDPOINTS = (ping, *(one for one in _DECLARED if isinstance(one, Endpoint)))


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
    app, services, clock = Flask("legacy_queue", static_folder=None), backend.services, backend.clock
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY + 1  # of what reads bodies without a limit of its own
    app.url_map.merge_slashes = False
    events = events_endpoint(backend.project, clock, backend.stopping, backend.trusts_proxy)
    rest = app.wsgi_app
    app.wsgi_app = RequestLog(  # type: ignore[method-assign]
        Dispatcher(
            ENDPOINTS, (events, migration), services, backend.authenticator, clock, backend.trusts_proxy, rest
        )
    )
    app.before_request(_check_target)
    app.register_error_handler(Exception, lambda error: render(error, record_of(request.environ), clock))
    upload = upload_view(services, backend.upload_slots)
    app.put(f"{UPLOADS}/<ticket>", endpoint="upload", provide_automatic_options=False)(upload)

    @app.get("/ready")
    def ready() -> Mapping[str, bool]:
        backend.storage.account.check()
        return {"ready": True}

    @app.get("/references/queue/v1/api.json")
    def reference() -> Mapping[str, Any]:
        return api_reference(ENDPOINTS, backend.root_url)

    @app.get("/references/queue/v1/exchanges.json")
    def exchanges() -> Mapping[str, Any]:
        return exchanges_reference(backend.project)

    @app.get("/schemas/queue/v1/<name>.json")
    def schema(name: str) -> Mapping[str, Any]:
        if name not in SCHEMAS:
            known = ", ".join(sorted(SCHEMAS))
            raise ResourceNotFound(f"there is no schema {name[:100]!r}; there are {known}")
        return served(name, backend.root_url)

    return app


def _check_target() -> None:
    record = record_of(request.environ)
    record.endpoint = request.endpoint
    if not request.blueprint:  # whose protocol is Azure's
        check_escapes(record.target)
