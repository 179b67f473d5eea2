"""The reference of the exchanges that the server publishes, and a check of events against it."""

from functools import cache
from typing import Any

import jsonschema_rs

from legacy_queue.domain.events import Event
from legacy_queue.domain.topics import PROJECT
from tests.http.calls import Queue, schema


@cache
def exchanges(project: str = PROJECT) -> Any:
    """The reference of the exchanges that a server of this project serves."""
    return Queue(project=project).send("GET", "/references/queue/v1/exchanges.json").get_json()


def check_event(event: Event) -> None:
    """Check that the payload is valid for its schema, and that the routing key has the documented words."""
    entry = _entry(event.exchange)
    _validator(entry["schema"]).validate(dict(event.payload))
    keys, words = entry["routingKey"], event.routing_key.split(".")
    assert len(words) == len(keys), event.routing_key
    for key, word in zip(keys, words, strict=True):
        assert word == key.get("constant", word)
        assert word
        assert word != "_" or not key["required"], f"{key['name']} is missing: {event.routing_key}"
    assert len(event.routing_key) <= 255


def _entry(exchange: str) -> Any:
    (entry,) = (entry for entry in exchanges()["entries"] if entry["exchange"] == exchange)
    return entry


@cache
def _validator(ref: str) -> Any:
    return jsonschema_rs.validator_for(schema(ref), validate_formats=True)
