"""Machine-readable descriptions of the API and the exchanges, generated from the server's declarations."""

import re
from collections.abc import Sequence
from typing import Any

from legacy_queue.domain.events import EXCHANGES, OPTIONAL, Exchange
from legacy_queue.domain.scopes import reference
from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.schemas import message_schema

# an entry has one route: that of the clients that are built from the reference
_ALSO = " Later clients call {} instead, with <provisionerId>/<workerType> as one escaped segment."


def api_reference(endpoints: Sequence[Endpoint], root_url: str) -> dict[str, Any]:
    """``/references/queue/v1/api.json``, in the form that client libraries of 2015-2018 read."""
    return {
        "version": 0,
        "$schema": "http://schemas.taskcluster.net/base/v1/api-reference.json#",
        "title": "Queue API Documentation",
        "description": "The queue keeps tasks and their runs until workers claim and resolve them. A call "
        "that is not described here is not served: it answers 404.",
        "baseUrl": f"{root_url}/v1",
        "serviceName": "queue",
        "entries": [_entry(endpoint) for endpoint in endpoints],
    }


def control_reference(endpoints: Sequence[Endpoint], root_url: str) -> dict[str, Any]:
    """``/references/control/v1/api.json``, in the same form."""
    return {
        **api_reference(endpoints, root_url),
        "title": "Control API Documentation",
        "description": "How a test controls a server that is started with --control.",
        "baseUrl": root_url,
        "serviceName": "control",
    }


def _entry(endpoint: Endpoint) -> dict[str, Any]:
    schemas = {"input": endpoint.input, "output": endpoint.output}
    return {
        "type": "function",
        "method": endpoint.method.lower(),
        "route": endpoint.route,
        "query": list(endpoint.query),
        "args": endpoint.args,
        "name": endpoint.name,
        "stability": endpoint.stability,
        "title": endpoint.title,
        "description": endpoint.description
        + (_ALSO.format(endpoint.task_queue_route) if endpoint.task_queue_route else ""),
        **({"scopes": reference(endpoint.scopes)} if endpoint.scopes is not None else {}),
        **{kind: f"/schemas/queue/v1/{name}.json#" for kind, name in schemas.items() if name},
    }


def exchanges_reference(project: str) -> dict[str, Any]:
    """``/references/queue/v1/exchanges.json``, in the form that client libraries of 2015-2018 read."""
    return {
        "version": 0,
        "$schema": "http://schemas.taskcluster.net/base/v1/exchanges-reference.json#",
        "title": "Queue AMQP Exchanges",
        "description": "What happens to tasks, published on topic exchanges. A message is sent at least "
        "once, and with 'route.<route>' as a further routing key for each route of its task.",
        "exchangePrefix": f"exchange/{project}/v1/",
        "serviceName": "queue",
        "entries": [_exchange_entry(exchange) for exchange in EXCHANGES.values()],
    }


def _exchange_entry(exchange: Exchange) -> dict[str, Any]:
    return {
        "type": "topic-exchange",
        "exchange": exchange.name,
        "name": re.sub("-(.)", lambda match: match[1].upper(), exchange.name),  # taskPending
        "title": exchange.title,
        "description": exchange.description,
        "routingKey": [_word_entry(exchange, *word) for word in exchange.key.items()],
        "schema": f"/schemas/queue/v1/{message_schema(exchange.name)}.json#",
    }


def _word_entry(exchange: Exchange, name: str, summary: str) -> dict[str, Any]:
    return {
        "name": name,
        "summary": summary,
        **({"constant": "primary"} if name == "routingKeyKind" else {}),
        "multipleWords": name == "reserved",
        "required": name not in OPTIONAL or name in exchange.always,
    }
