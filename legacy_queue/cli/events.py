"""legacy-queue events: print a line for each event."""

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click
import requests

from legacy_queue.cli.queue_options import QueueCommand, anonymous_queue_options
from legacy_queue.config.values import without_secrets
from legacy_queue.domain.times import format_time
from legacy_queue.history.words import state_words
from legacy_queue.queue_client import EVENTS_LOST, QueueClient, is_temporary


@click.command(cls=QueueCommand)
@anonymous_queue_options
@click.option("--exchange", metavar="NAME", help="Only events of this exchange, such as task-pending.")
@click.option(
    "--routing-key",
    default="#",
    metavar="PATTERN",
    help="Only events whose routing key matches. As in AMQP, * is one word, and # is any number of words.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
def events(queue: QueueClient, exchange: str | None, routing_key: str, as_json: bool) -> None:
    """Print the events of a server as they happen, until SIGTERM or Ctrl-C.

    If the server publishes its events on a broker, the command says how to consume them there.

    If the connection is lost, the command waits until the queue is back, and prints the events that it
    missed, as far as the queue still has them. If the server has several processes, you see the events of one
    of them.

    You need no credentials while the setting anonymous-scopes includes queue:events.
    """
    query = {"routingKey": routing_key, **({"exchange": exchange} if exchange else {})}
    for data in _follow(queue, query):  # a signal ends the process
        click.echo(data if as_json else _line(json.loads(data)))


def _line(event: Any) -> str:
    payload = event["payload"]
    name = event["exchange"].rpartition("/")[2]
    words = [format_time(datetime.now(UTC)), f"{name:<19}"]
    if "status" not in payload:
        return " ".join([*words, payload["taskGroupId"], "scheduler", payload["schedulerId"]])
    status = payload["status"]
    words.append(status["taskId"])
    if "runId" in payload:
        words += ["run", str(payload["runId"]), state_words(status["runs"][payload["runId"]])]
    else:
        words.append(status["state"])
    if "workerId" in payload:
        words.append(f"{payload['workerGroup']}/{payload['workerId']}")
    return " ".join(words)


def _follow(queue: QueueClient, query: Mapping[str, Any]) -> Iterator[str]:
    """The data of each event. After an interruption, a new stream goes on. Raises if the first is refused."""
    last_id: dict[str, Any] = {}
    retry = 2.0
    name = f"the queue at {without_secrets(queue.root_url)}"
    has_followed = False
    while True:
        try:
            with queue.events("/events", **query, **last_id) as events:
                click.echo(
                    f"Reconnected to {name}." if has_followed else f"Following {name}; Ctrl-C ends it.",
                    err=True,
                )
                has_followed = True
                for event in events:
                    retry = int(event["retry"]) / 1000 if "retry" in event else retry
                    last_id = {"lastEventId": event["id"]} if "id" in event else last_id
                    if event.get("event") == EVENTS_LOST:
                        click.echo("Some events are lost, because the queue no longer has them.", err=True)
                    elif "data" in event:
                        yield event["data"]
            click.echo(f"Lost the connection to {name}; trying again.", err=True)
        except requests.RequestException as failed:
            if not has_followed or not is_temporary(failed):
                raise
        time.sleep(retry)
