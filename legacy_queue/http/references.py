"""Machine-readable descriptions of the API and the exchanges, generated from the server's declarations."""

import re
from collections.abc import Sequence
from typing import Any

from legacy_queue.domain.events import EXCHANGES, OPTIONAL, Exchange
from legacy_queue.domain.scopes import reference
from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.schemas import message_schema

# an entry has room for one route: clients that are built from this reference use it
_ALSO = " Later clients call {} instead, where one escaped segment stands for <provisionerId>/<workerType>."


def api_reference(endpoints: Sequence[Endpoint], root_url: str) -> dict[str, Any]:
    """``/references/queue/v1/api.json``, in the form that client libraries of 2015-2018 read."""
    return {
        "version": 0,
        "$schema": "http://schemas.taskcluster.net/base/v1/api-reference.json#",
        "title": "Queue API Documentation",
        "description": "The queue keeps tasks and their runs until workers claim and resolve them. It "
        "answers 404 to a call that this reference does not describe.",
        "baseUrl": f"{root_url}/v1",
        "serviceName": "queue",
        "entries": [_entry(endpoint) for endpoint in endpoints],
    }


def control_reference(endpoints: Sequence[Endpoint], root_url: str) -> dict[str, Any]:
    """``/references/control/v1/api.json``, in the same form."""
    return {
        **api_reference(endpoints, root_url),
        "title": "Control API Documentation",
        "description": "A test controls a server with these calls. The server must run with --control.",
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
        "description": "The queue publishes each change of a task on topic exchanges. It sends a message at "
        "least once. Each route of the task is one more routing key of the message: 'route.<route>'.",
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
