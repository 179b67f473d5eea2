"""The way of a request to a declared endpoint: routing, checks, answer. Flask serves other paths.

Source: docs/explanation/http-contract.md#authentication.
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from flask import Request, Response
from werkzeug.exceptions import RequestEntityTooLarge

from legacy_queue.domain.authentication import Authenticator, Identity
from legacy_queue.domain.errors import (
    AuthenticationFailed,
    InputValidationError,
    InvalidRequestArguments,
    MalformedPayload,
    ResourceNotFound,
)
from legacy_queue.domain.generations import BY_PATH
from legacy_queue.domain.hawk import SignedRequest
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.scopes import reference
from legacy_queue.http.bodies import MAX_BODY, parse, validate
from legacy_queue.http.control_services import ControlServices
from legacy_queue.http.endpoint import Call, Endpoint
from legacy_queue.http.error_answers import render
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.http.parameters import PARAMETERS
from legacy_queue.http.request_log import Environ, RequestRecord, WsgiApp, record_of
from legacy_queue.services import Services

_PATTERNS = {name: re.compile(pattern) for name, pattern in PARAMETERS.items()}
_OF_2018 = re.compile("/*v1/")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Dispatcher:
    """A WSGI application that serves the endpoints; ``rest`` serves all other paths.

    ``prefixed`` endpoints are under ``/v1`` and ``/api/<service>/v1``, and sorted by their service. A path
    may begin with two slashes: clients whose base URL ends in a slash send that.
    """

    def __init__(
        self,
        prefixed: Sequence[Endpoint],
        bare: Sequence[Endpoint],
        rest: WsgiApp,
        services: Services,
        authenticator: Authenticator,
        injection: FaultInjection,
        *,
        trusts_proxy: bool = False,
        shape: str = BY_PATH,
        control: ControlServices | None = None,
    ) -> None:
        self._rest, self._services, self._control = rest, services, control
        self._authenticator, self._trusts_proxy, self._shape = authenticator, trusts_proxy, shape
        self._injection = injection
        by_service = groupby(prefixed, lambda endpoint: endpoint.service)
        routes = [
            *[
                f"(?:/v1|/api/{name}/v1)(?:{'|'.join(map(_pattern, endpoints))})"
                for name, endpoints in by_service
            ],
            *map(_pattern, bare),
        ]
        self._route = re.compile(f"/*(?:{'|'.join(routes)})")
        self._endpoints = {endpoint.name: endpoint for endpoint in (*prefixed, *bare)}

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        record = record_of(environ)
        method = "GET" if record.method == "HEAD" else record.method
        match = self._route.fullmatch(f"{record.path} {method}")
        if not match:
            return self._rest(environ, start_response)
        endpoint = self._endpoints[match.lastgroup or ""]
        segments = match.groups()[match.re.groupindex[endpoint.name] :]
        try:
            call = self._checked(endpoint, segments, environ, record)
            answer = self._injection.handle(call)
        except Exception as error:  # noqa: BLE001  a bug is rendered too
            answer = render(error, record, self._services.clock)
        if isinstance(answer, Response):
            return answer(environ, start_response)
        body = to_json(call.shaped(answer), is_sorted=True) + b"\n"
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return () if record.method == "HEAD" else (body,)

    def _checked(
        self, endpoint: Endpoint, segments: Sequence[str | None], environ: Environ, record: RequestRecord
    ) -> Call:
        """Raw path -> parameters checked -> Hawk -> body validated; the handler checks the scopes first.

        A change without valid credentials is refused before its body is parsed: parsing may be expensive.
        Before the parameters are checked, an error shows only the beginning of each.
        """
        if endpoint.disabled:
            raise ResourceNotFound(endpoint.disabled)
        params = endpoint.parameters(segments)
        record.call = endpoint.name, {name: value[:200] for name, value in params.items()}
        check_escapes(record.target)
        query = _query(endpoint, environ) if environ.get("QUERY_STRING") else {}
        is_todays = self._shape == "today" or (self._shape == BY_PATH and not _OF_2018.match(record.path))
        for name, value in (*params.items(), *query.items()):
            if not _PATTERNS[name].fullmatch(value):
                raise InvalidRequestArguments(f"{name} is {value[:200]!r}: it must match {PARAMETERS[name]}")
        if "taskQueueId" in params:
            params |= zip(("provisionerId", "workerType"), params["taskQueueId"].split("/"), strict=True)
        record.call = endpoint.name, params
        raw = _body(environ)
        identity, failure = self._authenticate(environ, record, raw)
        record.client_id = identity.client_id if identity else None
        body = None
        if endpoint.method != "GET" or endpoint.input:
            if endpoint.scopes is not None and identity is None:
                raise failure or endpoint.refusal(None, json.dumps(reference(endpoint.scopes)))
            body = parse(raw, environ.get("CONTENT_TYPE", ""))
            record.payload = raw, body
            _check_body(endpoint, body)
        if endpoint.by_body:
            endpoint = endpoint.by_body(body)
            record.call = endpoint.name, params
        return Call(
            endpoint,
            params,
            query,
            body,
            environ,
            is_todays,
            identity,
            failure,
            self._services,
            self._control,
        )

    def _authenticate(
        self, environ: Environ, record: RequestRecord, raw: bytes
    ) -> tuple[Identity | None, AuthenticationFailed | None]:
        try:
            signed = _signed_request(environ, record.target, raw, self._trusts_proxy)
            return self._authenticator.authenticate(signed, self._services.clock.wall_time()), None
        except AuthenticationFailed as failure:
            return None, failure


def check_escapes(target: str) -> None:
    """Raises InvalidRequestArguments for a ``%`` that is not a percent escape: it is ambiguous."""
    if broken := "%" in target and re.search("%(?![0-9a-fA-F]{2}).{0,2}", target):
        raise InvalidRequestArguments(
            f"{broken[0]!r} in the request's target is no percent escape: write % as %25"
        )


def _pattern(endpoint: Endpoint) -> str:
    """The endpoint's pattern in a group with its name."""
    return f"(?P<{endpoint.name}>{endpoint.pattern})"


def _query(endpoint: Endpoint, environ: Environ) -> dict[str, str]:
    """The parameters of the query without the bewit. Each must be known to the endpoint, and given once."""
    parameters = Request(environ).args.to_dict(flat=False)
    parameters.pop("bewit", None)
    for name, values in sorted(parameters.items()):
        if name not in endpoint.query:
            raise InvalidRequestArguments(f"{endpoint.name} takes no query parameter {name[:200]!r}")
        if len(values) > 1:
            raise InvalidRequestArguments(
                f"{name} is given {len(values)} times in the query: once is accepted"
            )
    return {name: values[0] for name, values in parameters.items()}


def _body(environ: Environ) -> bytes:
    """At most MAX_BODY bytes; b"" for a request that has neither a length nor chunks."""
    length, raw = int(environ.get("CONTENT_LENGTH") or 0), b""
    if length > MAX_BODY:
        raise RequestEntityTooLarge
    left = length if "HTTP_TRANSFER_ENCODING" not in environ else MAX_BODY + 1
    while left > 0 and (chunk := environ["wsgi.input"].read(left)):
        raw, left = raw + chunk, left - len(chunk)
    if len(raw) > MAX_BODY:
        raise RequestEntityTooLarge
    if len(raw) < length:
        raise MalformedPayload(f"the body ended after {len(raw)} of {length} bytes")
    return raw


def _check_body(endpoint: Endpoint, body: Any) -> None:
    if endpoint.input is None:
        if body not in (None, {}):
            raise InputValidationError(f"{endpoint.name} takes no body: send none, or {{}}")
    elif body is not None or not endpoint.input_optional:
        validate(body, endpoint.input)


def _signed_request(environ: Environ, target: str, body: bytes, trusts_proxy: bool) -> SignedRequest:
    """The request as the client signed it; raises AuthenticationFailed for an invalid port.

    Behind a trusted proxy the x-forwarded headers tell the host and the port that the client addressed.
    """

    def forwarded(header: str, otherwise: str) -> str:
        if not trusts_proxy:
            return otherwise
        return str(environ.get(f"HTTP_X_FORWARDED_{header}", otherwise).split(",")[0].strip())

    scheme = forwarded("PROTO", environ["wsgi.url_scheme"])
    address = forwarded("HOST", environ.get("HTTP_HOST", ""))
    has_port = ":" in address and not address.endswith("]")  # [::1] has colons, but no port
    host, _, port = address.rpartition(":") if has_port else (address, "", "")
    port = forwarded("PORT", "") or port or _DEFAULT_PORTS.get(scheme, "80")
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise AuthenticationFailed("host without a usable port")
    return SignedRequest(
        method=environ["REQUEST_METHOD"],
        target=target,
        host=host.strip("[]"),  # clients sign ::1 for [::1]
        port=int(port),
        authorization=environ.get("HTTP_AUTHORIZATION"),
        content_type=environ.get("CONTENT_TYPE", ""),
        body=body,
    )
