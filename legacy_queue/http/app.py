"""Makes the Flask application: the declared endpoints, and the references and pages about the server."""

from collections.abc import Mapping
from typing import Any

from flask import Flask, Response, request
from prometheus_client import CONTENT_TYPE_LATEST

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.times import format_time
from legacy_queue.http.browser_guard import BrowserGuard
from legacy_queue.http.client_connection import TrustedProxies
from legacy_queue.http.declared_endpoints import DECLARED, QUEUE, served_by
from legacy_queue.http.endpoints.artifacts import UPLOADS, download_view, upload_view
from legacy_queue.http.error_answers import render
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.http.flask_app import FlaskApp
from legacy_queue.http.page.pages import error_page, is_page
from legacy_queue.http.references import api_reference, control_reference, exchanges_reference
from legacy_queue.http.request_log import log_requests, record_of
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.http.site import Site
from legacy_queue.http.views import EndpointViews

DEVELOPMENT_HEADERS = (("x-legacy-queue-development", "anyone who reaches this server may do everything"),)


def create_app(site: Site) -> Flask:
    """Returns the application with the endpoints, the pages about the server, and the references.

    If ``site.is_development``, each answer has a header that says so.
    """
    services = site.services
    # it finds templates and static files in the folder of the page
    app = FlaskApp("legacy_queue.http.page", TrustedProxies(site.proxies))
    app.jinja_env.globals["pages"] = served_by("page")  # for the navigation
    app.jinja_env.filters["number"] = "{:,}".format
    injection = FaultInjection(site.faults, services.stopping)
    EndpointViews(site, injection).add_to(app, DECLARED)
    log_requests(
        app, (site.metrics.answered, site.journal.answered) if site.control else (site.metrics.answered,)
    )
    if site.control:

        @app.before_request
        def note_begin() -> None:
            record_of(request.environ).begun = format_time(services.clock.now())

    guard = BrowserGuard(site.hosts, site.origins)
    app.before_request(guard.check)
    app.after_request(guard.share)

    def answer_to(error: Exception) -> Response:
        answer = render(error, record_of(request.environ), services.clock)
        return error_page(answer) if is_page(request.path) else answer

    app.register_error_handler(Exception, answer_to)
    upload = upload_view(site, injection)
    path = f"{UPLOADS}/<ticket>"
    app.put(path, endpoint="upload", provide_automatic_options=False)(upload)
    download = download_view(services)
    app.get(path, endpoint="download", provide_automatic_options=False)(download)

    if site.is_development:

        @app.after_request
        def warn(response: Response) -> Response:
            for header in DEVELOPMENT_HEADERS:
                response.headers.add(*header)
            return response

    _add_monitoring(app, site)
    _add_references(app, site)
    return app


def _add_monitoring(app: Flask, site: Site) -> None:
    """Adds /ready and /metrics, which need no credentials."""

    @app.get("/ready")
    def ready() -> Mapping[str, Any]:
        site.services.account.check()
        failure = site.services.publisher.failure
        why = f"{failure}: events wait for the broker. The event broker-failed in the log says why"
        return {"ready": True, **({"broker": why} if failure else {})}

    @app.get("/metrics")
    def metrics() -> Response:
        return Response(site.metrics.render(), content_type=CONTENT_TYPE_LATEST)


def _add_references(app: Flask, site: Site) -> None:
    @app.get("/references/queue/v1/api.json")
    def reference() -> Mapping[str, Any]:
        return api_reference(QUEUE, site.root_url)

    @app.get("/references/control/v1/api.json")
    def reference_of_control() -> Mapping[str, Any]:
        return control_reference(served_by("control"), site.root_url)

    @app.get("/references/queue/v1/exchanges.json")
    def exchanges() -> Mapping[str, Any]:
        return exchanges_reference(site.project)

    @app.get("/schemas/queue/v1/<name>.json")
    def schema(name: str) -> Mapping[str, Any]:
        if name not in SCHEMAS:
            known = ", ".join(sorted(SCHEMAS))
            raise ResourceNotFound(f"there is no schema {name[:100]!r}: expected one of {known}")
        return {
            "$id": f"{site.root_url}/schemas/queue/v1/{name}.json#",
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": name.replace("-", " "),
            **SCHEMAS[name],
        }
