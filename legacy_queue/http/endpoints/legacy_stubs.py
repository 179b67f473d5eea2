"""Endpoints of purge-cache and auth, two other services that old workers call.

There is nothing to purge, and auth has this server's own clients and roles. Source: the references of
taskcluster-purge-cache and taskcluster-auth of 2016 to 2020.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.scopes import AllOf
from legacy_queue.http.endpoint import Call, Endpoint, endpoint

_DISABLED = "{} is another service: this server answers for it only when it is started with --legacy-stubs"


@endpoint(
    "GET",
    "/purge-cache/<provisionerId>/<workerType>",
    "Open Purge Requests",
    service="purge-cache",
    query=("since",),
    output="purge-requests-response",
)
def purge_requests(call: Call[None]) -> Mapping[str, Any]:
    """Always an empty list: no cache is to be purged. Workers call this before each task."""
    call.authorize()
    return {"requests": []}


@endpoint("GET", "/scopes/current", "Get Current Scopes", service="auth", output="scope-set")
def current_scopes(call: Call[None]) -> Mapping[str, Any]:
    """The scopes of the caller's credentials, expanded; none without valid credentials."""
    call.authorize()
    return {"scopes": call.scopes}


@endpoint(
    "POST",
    "/scopes/expand",
    "Expand Scopes",
    service="auth",
    scopes=AllOf(()),  # any valid credentials suffice
    input="scope-set",
    output="scope-set",
)
def expand_scopes(call: Call[Authenticator]) -> Mapping[str, Any]:
    """The scopes, and the scopes of the roles that they assume."""
    return {"scopes": call.authorize().expand(call.body["scopes"])}


# a GET with a body, which clients before 2018 send
expand_scopes_get = replace(expand_scopes, name="expandScopesGet", method="GET")

_STUBS = (purge_requests, expand_scopes, expand_scopes_get, current_scopes)


def legacy_stubs(is_enabled: bool) -> tuple[Endpoint, ...]:
    """The endpoints. If they are not enabled, they answer a 404 that says how to enable them."""
    if is_enabled:
        return _STUBS
    return tuple(replace(stub, disabled=_DISABLED.format(stub.service)) for stub in _STUBS)
