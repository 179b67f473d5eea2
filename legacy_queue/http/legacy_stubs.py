"""What old workers ask of services beside the queue: purge-cache and auth.

There is nothing to purge, and auth knows this server's own clients and roles. Source: the references of
taskcluster-purge-cache and taskcluster-auth of 2016 to 2020.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.scopes import AllOf
from legacy_queue.http.endpoint import Call, Endpoint, endpoint

_ANY_CLIENT = AllOf(())  # whose credentials are valid
_DISABLED = (
    "this server stands in for {}, which is another service, only when it is started with --legacy-stubs"
)


@endpoint(
    "GET",
    "/purge-cache/<provisionerId>/<workerType>",
    "Open Purge Requests",
    service="purge-cache",
    query=("since",),
    output="purge-requests-response",
)
def purge_requests(call: Call) -> Mapping[str, Any]:
    """No cache of the worker type is to be purged. A worker asks before each task."""
    call.authorize()
    return {"requests": []}


@endpoint("GET", "/scopes/current", "Get Current Scopes", service="auth", output="scope-set")
def current_scopes(call: Call) -> Mapping[str, Any]:
    """The scopes of the caller's credentials, expanded; none without valid credentials."""
    call.authorize()
    return {"scopes": call.scopes}


def legacy_stubs(authenticator: Authenticator, is_enabled: bool) -> tuple[Endpoint, ...]:
    """The endpoints; those that are not enabled answer 404 with a sentence that says how to enable them."""
    schemas = {"input": "scope-set", "output": "scope-set"}

    @endpoint("POST", "/scopes/expand", "Expand Scopes", service="auth", scopes=_ANY_CLIENT, **schemas)
    def expand_scopes(call: Call) -> Mapping[str, Any]:
        """The scopes, and those of the roles that they assume."""
        call.authorize()
        return {"scopes": authenticator.expand(call.body["scopes"])}

    # with a body, as clients before 2018 send it
    expand_scopes_get = replace(expand_scopes, name="expandScopesGet", method="GET")
    stubs = purge_requests, expand_scopes, expand_scopes_get, current_scopes
    if is_enabled:
        return stubs
    return tuple(replace(one, disabled=_DISABLED.format(one.service)) for one in stubs)
