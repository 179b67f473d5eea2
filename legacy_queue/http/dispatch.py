"""Requests to declared endpoints: found, checked, answered. What has another path goes on to Flask."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote

from flask import Request, Response

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.errors import (
    AuthenticationFailed,
    InputValidationError,
    InvalidRequestArguments,
    MalformedPayload,
    QueueError,
)
from legacy_queue.http.auth import check_escapes, raw_target, signed_request
from legacy_queue.http.bodies import MAX_BODY, parse, validate
from legacy_queue.http.endpoint import PARAMETERS, Call, Caller, Endpoint
from legacy_queue.http.error_answers import render, too_large
from legacy_queue.http.request_log import Environ, RequestRecord, WsgiApp, record_of
from legacy_queue.ports import Clock
from legacy_queue.services import Services

_PREFIXES = r"(?:/v1|/api/queue/v1)"
_PARAMETER = re.compile(r"<(\w+)>")
_PATTERNS = {name: re.compile(pattern) for name, pattern in PARAMETERS.items()}

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class Dispatcher:
    """A WSGI application: the endpoints, ``prefixed`` under both prefixes; ``rest`` has all other paths."""

    def __init__(
        self,
        prefixed: Sequence[Endpoint],
        bare: Sequence[Endpoint],
        services: Services,
        authenticator: Authenticator,
        clock: Clock,
        trusts_proxy: bool,
        rest: WsgiApp,
    ) -> None:
        self._services, self._authenticator, self._clock = services, authenticator, clock
        self._trusts_proxy, self._rest = trusts_proxy, rest
        self._routes = {
            method: _Routes(*([one for one in kind if one.method == method] for kind in (prefixed, bare)))
            for method in {one.method for one in (*prefixed, *bare)}
        }

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        routes = self._routes.get("GET" if method == "HEAD" else method)
        found = routes and routes.find(environ["PATH_INFO"])
        if not found:
            return self._rest(environ, start_response)
        record = record_of(environ)
        try:
            answer = found[0].handler(self._checked(*found, environ, record))
        except Exception as error:  # noqa: BLE001  a bug's too
            answer = render(error, record, self._clock)
        if isinstance(answer, Response):
            return answer(environ, start_response)
        body = f"{_encode(answer)}\n".encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return () if method == "HEAD" else (body,)

    def _checked(
        self, declared: Endpoint, segments: dict[str, str], environ: Environ, record: RequestRecord
    ) -> Call:
        """Raw path -> parameters checked -> Hawk -> body validated; the handler checks the scopes first.

        A change without credentials is refused before its body is read as JSON: no stranger makes that work.
        Until its parameters are checked, an error shows no more of them than their beginning.
        """
        params = {name: unquote(segment) for name, segment in segments.items()}
        record.call = declared.name, {name: value[:200] for name, value in params.items()}
        check_escapes(raw_target(environ))
        query = _query(declared, environ) if environ.get("QUERY_STRING") else {}
        for name, value in (*params.items(), *query.items()):
            if not _PATTERNS[name].fullmatch(value):
                raise InvalidRequestArguments(f"{name} is {value[:200]!r}: it must match {PARAMETERS[name]}")
        record.call = declared.name, params
        raw = _body(environ)
        caller = self._caller(environ, raw)
        record.client_id = caller.client_id
        body = None
        if declared.method != "GET":
            caller.require_credentials(declared)
            body = parse(raw, environ.get("CONTENT_TYPE", ""))
            record.payload = raw, body
            _check_body(declared, body)
        return Call(declared, params, query, body, caller, self._services, environ)

    def _caller(self, environ: Environ, raw: bytes) -> Caller:
        try:
            signed = signed_request(environ, raw, self._trusts_proxy)
            return Caller(self._authenticator.authenticate(signed, self._clock.now()))
        except AuthenticationFailed as failure:
            return Caller(None, failure)


class _Routes:
    """Those of one method, as one pattern. A client whose base URL ends in a slash sends two."""

    def __init__(self, prefixed: Sequence[Endpoint], bare: Sequence[Endpoint]) -> None:
        ours = "|".join(map(_pattern, prefixed))
        routes = "|".join([f"{_PREFIXES}(?:{ours})", *map(_pattern, bare)])
        self._pattern = re.compile(f"/*(?:{routes})")
        self._endpoints = {
            one.name: (one, _PARAMETER.findall(one.route), self._pattern.groupindex[one.name])
            for one in (*prefixed, *bare)
        }

    def find(self, path: str) -> tuple[Endpoint, dict[str, str]] | None:
        """The endpoint and its segments of the path, as they were sent."""
        match = self._pattern.fullmatch(path)
        if not match:
            return None
        endpoint, names, group = self._endpoints[match.lastgroup or ""]
        return endpoint, dict(zip(names, match.groups()[group:], strict=False))


def _pattern(endpoint: Endpoint) -> str:
    """In a group with the endpoint's name. A ``name`` is data: all the rest of a path, slashes and all."""
    route = _PARAMETER.sub(lambda one: "(.*)" if one[1] == "name" else "([^/]+)", endpoint.route)
    return f"(?P<{endpoint.name}>{route})"


def _query(declared: Endpoint, environ: Environ) -> dict[str, str]:
    """The query's parameters, each given once and known to the endpoint; a bewit is not one of them."""
    given = {name: values for name, values in Request(environ).args.lists() if name != "bewit"}
    for name, values in sorted(given.items()):
        if name not in declared.query:
            raise InvalidRequestArguments(f"{declared.name} takes no query parameter {name[:200]!r}")
        if len(values) > 1:
            raise InvalidRequestArguments(
                f"{name} is given {len(values)} times in the query: once is accepted"
            )
    return {name: values[0] for name, values in given.items()}


def _body(environ: Environ) -> bytes:
    """Of MAX_BODY bytes at most; what a request without a length and without chunks sends is none."""
    announced, raw = int(environ.get("CONTENT_LENGTH") or 0), b""
    if announced > MAX_BODY:
        raise too_large()
    left = announced if "HTTP_TRANSFER_ENCODING" not in environ else MAX_BODY + 1
    try:
        while left > 0 and (chunk := environ["wsgi.input"].read(left)):
            raw, left = raw + chunk, left - len(chunk)
    except QueueError:
        raise
    except Exception as error:  # noqa: BLE001  gunicorn's, for chunks that are none, or a connection that ends
        raise MalformedPayload(f"the body cannot be read ({type(error).__name__})") from None
    if len(raw) > MAX_BODY:
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
