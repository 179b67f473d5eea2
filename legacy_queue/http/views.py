"""The Flask views of the declared endpoints: they check a request, call the handler, and send its answer.

Source: docs/explanation/http-contract.md#authentication.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from flask import Flask, Response, request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import RequestEntityTooLarge

from legacy_queue.domain.authentication import Identity
from legacy_queue.domain.errors import (
    AuthenticationFailed,
    InputValidationError,
    InvalidRequestArguments,
    MalformedPayload,
    ResourceNotFound,
)
from legacy_queue.domain.formats_of_2018 import BY_PATH
from legacy_queue.domain.hawk import SignedRequest
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.scopes import may_satisfy, reference
from legacy_queue.http.endpoint import Call, Endpoint
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.http.parameters import PARAMETERS, in_words
from legacy_queue.http.request_bodies import MAX_BODY, form, parse, validate, without_blocking
from legacy_queue.http.request_log import Environ, RequestRecord, record_of
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.http.site import Site

_PATTERNS = {name: re.compile(pattern) for name, pattern in PARAMETERS.items()}
_PREFIX_2018 = "/v1"
_REST = re.compile("<(name|objectName)>")  # their values may contain slashes
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_PORT = re.compile("[0-9]{1,5}")


class _JsonResponse(Response):
    """The answer of an endpoint. Its headers are complete, so Werkzeug need not copy and complete them."""

    def get_wsgi_headers(self, environ: Environ) -> Headers:  # noqa: ARG002
        return self.headers


class EndpointViews:
    """Makes a Flask view for each endpoint: it checks the request, calls the handler, sends the answer."""

    def __init__(self, site: Site, injection: FaultInjection) -> None:
        self._site = site
        self._injection = injection

    def add_to(self, app: Flask, endpoints: Iterable[Endpoint]) -> None:
        """Add a rule for each route, under both prefixes (``/v1`` and ``/api/<service>/v1``) or under none.

        If two endpoints have the same method and route, only the first gets a rule: see ``Endpoint.by_body``.
        """
        routed: set[tuple[str, str, str]] = set()
        for endpoint in endpoints:
            view = self._view(endpoint)
            name = f"{endpoint.service}/{endpoint.name}"
            for route in endpoint.routes:
                key = (endpoint.service, route, endpoint.method)
                if key in routed:
                    continue
                routed.add(key)
                for prefix in (_PREFIX_2018, f"/api/{endpoint.service}/v1") if endpoint.has_prefix else ("",):
                    app.add_url_rule(
                        prefix + _REST.sub(r"<rest:\1>", route),
                        name,
                        view,
                        methods=[endpoint.method],
                        provide_automatic_options=False,
                    )

    def _view(self, endpoint: Endpoint) -> Callable[..., Response]:
        if disabled := endpoint.disabled(self._site):
            return partial(_refuse, disabled)
        return partial(self._answer, endpoint, _may_be_open(endpoint, self._site))

    def _answer(self, endpoint: Endpoint, is_open: bool, **segments: str) -> Response:
        environ = request.environ
        record = record_of(environ)
        call = self._checked(endpoint, is_open, segments, environ, record)
        answer = self._injection.handle(call)
        if record.is_allowed_to_all:
            self._site.services.calls.record_read(call.client_id, (endpoint.name, endpoint.scopes_named))
        if isinstance(answer, Response):
            return answer
        record.answer = answer
        body = to_json(call.shaped(answer), is_sorted=True) + b"\n"
        return _JsonResponse(body, content_type="application/json")

    def _checked(
        self,
        endpoint: Endpoint,
        is_open: bool,
        segments: Mapping[str, str],
        environ: Environ,
        record: RequestRecord,
    ) -> Call:
        """Check the parameters, then the signature (Hawk), then the body. The handler checks the scopes.

        Parsing a body may be expensive. So if the call has no valid credentials and the anonymous role cannot
        allow it, it is refused before that. If a parameter is wrong, the error shows only the beginning of
        each parameter.
        """
        params = {name: unquote(value) if "%" in value else value for name, value in segments.items()}
        record.endpoint = endpoint.name
        record.params = {name: value[:200] for name, value in params.items()}
        _check_escapes(record.target)
        query = _query(endpoint) if environ.get("QUERY_STRING") else {}
        shape = self._site.shape
        is_todays = shape == "today" or (shape == BY_PATH and not _is_of_2018(environ))
        for name, value in (*params.items(), *query.items()):
            if not _PATTERNS[name].fullmatch(value):
                expected = in_words(PARAMETERS[name])
                raise InvalidRequestArguments(f"{name} is {value[:200]!r}: expected {expected}")
        if "taskQueueId" in params:
            params |= zip(("provisionerId", "workerType"), params["taskQueueId"].split("/"), strict=True)
        record.params = params
        raw = _body(environ)
        identity, failure = self._authenticate(environ, record, raw)
        if endpoint.takes_cookies and not (identity or failure):
            identity = self._site.sign_in.identity(environ)
        record.client_id = identity.client_id if identity else None
        if endpoint.takes_any_credentials and identity is None:
            raise failure or endpoint.refusal(None, "valid credentials")
        body = None
        if endpoint.method != "GET" or endpoint.input:
            if endpoint.scopes is not None and identity is None and not is_open:
                raise failure or endpoint.refusal(None, json.dumps(reference(endpoint.scopes)))
            waiter = self._site.services.waiter
            body = without_blocking(waiter, raw, partial(_checked_body, endpoint, raw, environ, record))
        if endpoint.by_body:
            endpoint = endpoint.by_body(body)
            record.endpoint = endpoint.name
        return Call(
            endpoint,
            params,
            query,
            body,
            environ,
            is_todays,
            identity,
            failure,
            self._site,
        )

    def _authenticate(
        self, environ: Environ, record: RequestRecord, raw: bytes
    ) -> tuple[Identity | None, AuthenticationFailed | None]:
        try:
            signed = _signed_request(environ, record.target, raw)
            return self._site.authenticator.authenticate(signed, self._site.services.clock.wall_time()), None
        except AuthenticationFailed as failure:
            return None, failure


def _refuse(why: str, **_segments: str) -> Response:
    raise ResourceNotFound(why)


def _may_be_open(endpoint: Endpoint, site: Site) -> bool:
    """Whether the scopes that every caller has could be enough. Only the body then shows if they are."""
    return all(may_satisfy(site.anonymous, template) for template in endpoint.scopes_named)


def _check_escapes(target: str) -> None:
    """Raises InvalidRequestArguments if a ``%`` does not begin a percent escape: its meaning is unclear."""
    if broken := "%" in target and re.search("%(?![0-9a-fA-F]{2}).{0,2}", target):
        raise InvalidRequestArguments(
            f"{broken[0]!r} in the request's target is not a percent escape: write % as %25"
        )


def _query(endpoint: Endpoint) -> dict[str, str]:
    """The query parameters except the bewit.

    Raises InvalidRequestArguments if the endpoint does not know one, or if one is given twice.
    """
    parameters = request.args.to_dict(flat=False)
    parameters.pop("bewit", None)
    for name, values in sorted(parameters.items()):
        if name not in endpoint.query:
            expected = f"one of {', '.join(endpoint.query)}" if endpoint.query else "none"
            raise InvalidRequestArguments(
                f"{endpoint.name} takes no query parameter {name[:200]!r}: expected {expected}"
            )
        if len(values) > 1:
            raise InvalidRequestArguments(f"{name} is given {len(values)} times in the query: expected once")
    return {name: values[0] for name, values in parameters.items()}


def _body(environ: Environ) -> bytes:
    """Reads the body. It is b"" if the request has neither a length nor chunks.

    Raises RequestEntityTooLarge if it has more than MAX_BODY bytes, MalformedPayload if it ends early.
    """
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if not length and "HTTP_TRANSFER_ENCODING" not in environ:
        return b""
    if length > MAX_BODY:
        raise RequestEntityTooLarge
    # a body of chunks is read with one byte more than the limit, to notice that it is longer
    raw: bytes = environ["wsgi.input"].read(length or MAX_BODY + 1)
    if len(raw) > MAX_BODY:
        raise RequestEntityTooLarge
    if len(raw) < length:
        raise MalformedPayload(f"the body ended after {len(raw)} bytes: its content-length is {length}")
    return raw


def _checked_body(endpoint: Endpoint, raw: bytes, environ: Environ, record: RequestRecord) -> Any:
    """Parses and validates the body. Raises MalformedPayload or InputValidationError."""
    body = form(raw) if endpoint.takes_cookies else parse(raw, environ.get("CONTENT_TYPE", ""))
    record.payload = raw, body
    _check_body(endpoint, body, len(raw), _is_of_2018(environ))
    return body


def _is_of_2018(environ: Environ) -> bool:
    return bool(environ["PATH_INFO"].startswith(f"{_PREFIX_2018}/"))


def _check_body(endpoint: Endpoint, body: Any, size: int, is_of_2018: bool) -> None:
    if endpoint.input is None:
        if body not in (None, {}):
            raise InputValidationError(f"{endpoint.name} takes no body: expected none, or {{}}")
    elif body is not None or not endpoint.input_optional:
        todays = f"{endpoint.input}-of-today"
        validate(body, endpoint.input if is_of_2018 or todays not in SCHEMAS else todays, size)


def _signed_request(environ: Environ, target: str, body: bytes) -> SignedRequest:
    """The request as the client signed it. Raises AuthenticationFailed if the port is invalid.

    If a trusted proxy has set the x-forwarded headers, they have the host and port that the client signed.
    Headers of other proxies are already removed.
    """
    scheme = environ["wsgi.url_scheme"]
    address = environ.get("HTTP_HOST", "")
    if forwarded := environ.get("HTTP_X_FORWARDED_HOST"):
        address = forwarded.split(",")[0].strip()
    has_port = ":" in address and not address.endswith("]")  # [::1] has colons, but not a port
    host, _, port = address.rpartition(":") if has_port else (address, "", "")
    if forwarded := environ.get("HTTP_X_FORWARDED_PORT"):
        port = forwarded.split(",")[0].strip() or port
    port = port or _DEFAULT_PORTS.get(scheme, "80")
    if not _PORT.fullmatch(port):
        raise AuthenticationFailed("the host's port is wrong: expected 1 to 5 digits", is_of_form=True)
    return SignedRequest(
        method=environ["REQUEST_METHOD"],
        target=target,
        host=host.strip("[]"),  # clients sign ::1 for [::1]
        port=int(port),
        authorization=environ.get("HTTP_AUTHORIZATION"),
        content_type=environ.get("CONTENT_TYPE", ""),
        body=body,
    )
