"""Endpoints of purge-cache and auth, two other services that old workers call.

There is nothing to purge, and auth has this server's own clients and roles. Source: the references of
taskcluster-purge-cache and taskcluster-auth of 2016 to 2020.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from legacy_queue.domain.scopes import AllOf
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.site import Site

_DISABLED = "{} is another service: this server answers for it only when it is started with --legacy-stubs"


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
    """Always an empty list: no cache is to be purged. Workers call this before each task."""
    call.authorize()
    return {"requests": []}


@_auth("GET", "/scopes/current", "Get Current Scopes", output="scope-set")
def current_scopes(call: Call) -> Reply:
    """The scopes of the caller's credentials, expanded; none without valid credentials."""
    call.authorize()
    return {"scopes": call.scopes}


@_auth(
    "POST",
    "/scopes/expand",
    "Expand Scopes",
    scopes=AllOf(()),  # any valid credentials suffice
    input="scope-set",
    output="scope-set",
)
def expand_scopes(call: Call) -> Reply:
    """The scopes, and the scopes of the roles that they assume."""
    return {"scopes": call.authorize().authenticator.expand(call.body["scopes"])}


# a GET with a body, which clients before 2018 send
expand_scopes_get = replace(expand_scopes, name="expandScopesGet", method="GET")
