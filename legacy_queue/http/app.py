"""The Flask application: the declared endpoints, and pages about the server."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import ModuleType
from typing import Any

from flask import Flask, Response, request

from legacy_queue import __version__
from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.events import PROJECT
from legacy_queue.domain.generations import BY_PATH
from legacy_queue.domain.hosts import Network
from legacy_queue.domain.scopes import OPEN_READS
from legacy_queue.domain.times import format_time
from legacy_queue.http.browser_guard import ANY, BrowserGuard
from legacy_queue.http.client_connection import TrustedProxies
from legacy_queue.http.endpoint import Call, Endpoint, endpoint
from legacy_queue.http.endpoints import artifacts, groups, objects, runs, task_queues, tasks, workers
from legacy_queue.http.endpoints.control import CONTROL_ENDPOINTS, ControlServices, control_endpoints
from legacy_queue.http.endpoints.event_stream import event_endpoints
from legacy_queue.http.endpoints.inspect import INSPECT_ENDPOINTS
from legacy_queue.http.endpoints.legacy_stubs import legacy_stubs
from legacy_queue.http.endpoints.migration import migration
from legacy_queue.http.error_answers import render
from legacy_queue.http.fault_injection import FaultInjection, target_of
from legacy_queue.http.flask_app import FlaskApp
from legacy_queue.http.metrics import Metrics, add_monitoring
from legacy_queue.http.page.pages import Pages, error_page, is_page
from legacy_queue.http.page.sign_in import SignIn
from legacy_queue.http.references import api_reference, control_reference, exchanges_reference
from legacy_queue.http.request_journal import Journal
from legacy_queue.http.request_log import log_requests, record_of
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.http.views import EndpointViews
from legacy_queue.ports.account import StorageAccount
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.services.composition import Services
from legacy_queue.services.control.fault import SIGNED_URLS

DEVELOPMENT_HEADERS = (("x-legacy-queue-development", "anyone who reaches this server may do everything"),)
_started = time.monotonic()


@endpoint("GET", "/ping", "Ping Server", output="ping-response")
def ping(call: Call[None]) -> Mapping[str, Any]:
    """Answer without asking storage: the process is alive. ``uptime`` is in seconds."""
    call.authorize()
    return {"alive": True, "uptime": round(time.monotonic() - _started, 3)}


@endpoint("GET", "/__lbheartbeat__", "Load Balancer Heartbeat")
def lbheartbeat(call: Call[None]) -> Mapping[str, Any]:
    """Answer without asking storage, as ping does."""
    call.authorize()
    return {}


@endpoint("GET", "/__heartbeat__", "Heartbeat")
def heartbeat(call: Call[StorageAccount]) -> Mapping[str, Any]:
    """Answer once storage has answered, as /ready does; 503 while storage is away."""
    call.authorize().check()
    return {}


@endpoint("GET", "/__version__", "Version")
def version(call: Call[None]) -> Mapping[str, Any]:
    """The version of legacy-queue, in the form of Dockerflow: commit, source and build are empty."""
    call.authorize()
    return {"version": __version__, "commit": "", "source": "", "build": ""}


_MODULES = (tasks, groups, runs, task_queues, artifacts, workers)


def _declared_in(module: ModuleType) -> list[Endpoint]:
    return [value for value in vars(module).values() if isinstance(value, Endpoint)]


ENDPOINTS = (ping, lbheartbeat, heartbeat, version, *chain(*map(_declared_in, _MODULES)))
OBJECT_ENDPOINTS = (replace(ping, name="objectPing", service="object"), *_declared_in(objects))


FAULT_TARGETS = (*map(target_of, (*ENDPOINTS, *OBJECT_ENDPOINTS)), *SIGNED_URLS)
NOT_IN_JOURNAL = frozenset(
    {
        *("events", "inspectEvents", "static"),
        *(endpoint.name for endpoint in (*CONTROL_ENDPOINTS, *INSPECT_ENDPOINTS)),
    }
)


def create_app(
    services: Services,
    authenticator: Authenticator,
    root_url: str,
    injection: FaultInjection,
    metrics: Metrics,
    *,
    hosts: Collection[str] = (ANY,),
    origins: Collection[str] = (),
    proxies: Sequence[Network] = (),
    shape: str = BY_PATH,
    anonymous: Sequence[str] = OPEN_READS,
    is_development: bool = False,
    project: str = PROJECT,
    has_legacy_stubs: bool = False,
    upload_slots: UploadSlots | None = None,
    control: ControlServices | None = None,
    sign_in: SignIn,
) -> Flask:
    """The application: the endpoints under both prefixes, pages about the server, and references.

    ``hosts`` and ``origins`` are those of BrowserGuard, ``proxies`` those of TrustedProxies. With
    ``is_development`` each answer says so in a header. Without ``control``, /control/v1 is disabled.
    """
    # its templates and static files are of the page
    app = FlaskApp("legacy_queue.http.page", TrustedProxies(proxies))
    events = event_endpoints(project, sign_in.identity, has_broker=services.publisher.has_broker)
    pages = Pages(sign_in, services.clock, control, root_url).endpoints
    bare = (*events, migration, *pages, *INSPECT_ENDPOINTS, *control_endpoints(control is not None))
    excluded = {*NOT_IN_JOURNAL, *(page.name for page in pages)}
    journal = Journal(excluded, services.clock.now, is_kept=control is not None)
    prefixed = (*ENDPOINTS, *OBJECT_ENDPOINTS, *legacy_stubs(has_legacy_stubs))
    views = EndpointViews(
        services,
        authenticator,
        injection,
        (journal, *(vars(control).values() if control else ())),
        shape=shape,
        anonymous=anonymous,
    )
    views.add_to(app, prefixed, has_prefix=True)
    views.add_to(app, bare, has_prefix=False)
    log_requests(app, (metrics.answered, journal.answered) if control else (metrics.answered,))
    if control:

        @app.before_request
        def note_begin() -> None:
            record_of(request.environ).begun = format_time(services.clock.now())

    guard = BrowserGuard(hosts, origins)
    app.before_request(guard.check)
    app.after_request(guard.share)

    def answer_to(error: Exception) -> Response:
        answer = render(error, record_of(request.environ), services.clock)
        return error_page(answer) if is_page(request.path) else answer

    app.register_error_handler(Exception, answer_to)
    upload = artifacts.upload_view(services.uploads, upload_slots or UploadSlots(), injection)
    path = f"{artifacts.UPLOADS}/<ticket>"
    app.put(path, endpoint="upload", provide_automatic_options=False)(upload)
    download = artifacts.download_view(services.uploads, services.artifacts)
    app.get(path, endpoint="download", provide_automatic_options=False)(download)

    if is_development:

        @app.after_request
        def warn(response: Response) -> Response:
            for header in DEVELOPMENT_HEADERS:
                response.headers.add(*header)
            return response

    add_monitoring(app, services, metrics)

    @app.get("/references/queue/v1/api.json")
    def reference() -> Mapping[str, Any]:
        return api_reference(ENDPOINTS, root_url)

    @app.get("/references/control/v1/api.json")
    def reference_of_control() -> Mapping[str, Any]:
        return control_reference(CONTROL_ENDPOINTS, root_url)

    @app.get("/references/queue/v1/exchanges.json")
    def exchanges() -> Mapping[str, Any]:
        return exchanges_reference(project)

    @app.get("/schemas/queue/v1/<name>.json")
    def schema(name: str) -> Mapping[str, Any]:
        if name not in SCHEMAS:
            known = ", ".join(sorted(SCHEMAS))
            raise ResourceNotFound(f"there is no schema {name[:100]!r}; there are {known}")
        return {
            "$id": f"{root_url}/schemas/queue/v1/{name}.json#",
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": name.replace("-", " "),
            **SCHEMAS[name],
        }

    return app
