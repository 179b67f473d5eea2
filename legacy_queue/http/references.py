"""The machine-readable description of the API, generated from what the server routes by."""

import re
from collections.abc import Sequence
from typing import Any

from legacy_queue.domain.scopes import reference
from legacy_queue.http.endpoint import Endpoint


def api_reference(endpoints: Sequence[Endpoint], root_url: str) -> dict[str, Any]:
    """``/references/queue/v1/api.json``, in the form that client libraries of 2015-2018 read."""
    return {
        "version": 0,
        "$schema": "http://schemas.taskcluster.net/base/v1/api-reference.json#",
        "title": "Queue API Documentation",
        "description": "The queue keeps tasks and their runs until workers claim and resolve them.",
        "baseUrl": f"{root_url}/v1",
        "serviceName": "queue",
        "entries": [_entry(endpoint) for endpoint in endpoints],
    }


def _entry(endpoint: Endpoint) -> dict[str, Any]:
    schemas = {"input": endpoint.input, "output": endpoint.output}
    return {
        "type": "function",
        "method": endpoint.method.lower(),
        "route": endpoint.route,
        "query": [],
        "args": re.findall(r"<(\w+)>", endpoint.route),
        "name": endpoint.name,
        "stability": "stable",
        "title": endpoint.title,
        "description": endpoint.description,
        **({"scopes": reference(endpoint.scopes)} if endpoint.scopes is not None else {}),
        **{kind: f"/schemas/queue/v1/{name}.json#" for kind, name in schemas.items() if name},
    }
