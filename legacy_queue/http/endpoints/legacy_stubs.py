"""Endpoints of purge-cache and auth, two other services that old workers call.

purge-cache never asks to purge anything, and auth knows this server's own clients and roles. Source: the
references of taskcluster-purge-cache and taskcluster-auth of 2016 to 2020.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from legacy_queue.domain.scopes import AllOf
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.site import Site

_DISABLED = "{} is another service: to answer for it, start this server with --legacy-stubs"


def _unless_enabled(service: str) -> Callable[[Site], str]:
    return lambda site: "" if site.has_legacy_stubs else _DISABLED.format(service)


_purge_cache = partial(endpoint, service="purge-cache", disabled=_unless_enabled("purge-cache"))
_auth = partial(endpoint, service="auth", disabled=_unless_enabled("auth"))


@_purge_cache(
    "GET",
    "/purge-cache/<provisionerId>/<workerType>",
    "Open Purge Requests",
    query=("since",),
    output="purge-requests-response",
)
def purge_requests(call: Call) -> Reply:
    """Get an empty list: there is no cache to purge. Workers call this before each task."""
    call.authorize()
    return {"requests": []}


@_auth("GET", "/scopes/current", "Get Current Scopes", output="scope-set")
def current_scopes(call: Call) -> Reply:
    """Get the caller's scopes, expanded. Without valid credentials the list is empty."""
    call.authorize()
    return {"scopes": call.scopes}


@_auth(
    "POST",
    "/scopes/expand",
    "Expand Scopes",
    scopes=AllOf(()),  # any valid credentials are enough
    input="scope-set",
    output="scope-set",
)
def expand_scopes(call: Call) -> Reply:
    """Get these scopes together with the scopes of all roles that they assume."""
    return {"scopes": call.authorize().authenticator.expand(call.body["scopes"])}


# clients before 2018 send a GET with a body
expand_scopes_get = replace(expand_scopes, name="expandScopesGet", method="GET")
