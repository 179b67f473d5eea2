"""legacy-queue events: a line for each event."""

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click
import requests

from legacy_queue.cli.queue_options import anonymous_queue_options
from legacy_queue.config.values import without_secrets
from legacy_queue.domain.times import format_time
from legacy_queue.history.words import state_words
from legacy_queue.queue_client import EVENTS_LOST, QueueClient, is_temporary


@click.command()
@anonymous_queue_options
@click.option("--exchange", help="Such as task-pending.")
@click.option("--routing-key", default="#", help="A pattern, as in a binding of a queue.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each event.")
def events(queue: QueueClient, exchange: str | None, routing_key: str, as_json: bool) -> None:
    """Print the events of a server without a broker as they happen, until SIGTERM or Ctrl-C. Needs no
    credentials while anonymous-scopes has queue:events.

    Of several server processes, these are the events of one. If the server has a broker, the command says how
    to consume the events there.

    When the queue is back after an interruption, the events since then are printed, if it still has them.
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
    """The data of each event, from one stream after the other. If the first is refused, the command ends."""
    last_id: dict[str, Any] = {}
    retry = 2.0
    said = "is being followed; Ctrl-C ends it"
    name = f"The queue at {without_secrets(queue.root_url)}"
    while True:
        try:
            with queue.events("/events", **query, **last_id) as events:
                click.echo(f"{name} {said}.", err=True)
                said = "is back"
                for event in events:
                    retry = int(event["retry"]) / 1000 if "retry" in event else retry
                    last_id = {"lastEventId": event["id"]} if "id" in event else last_id
                    if event.get("event") == EVENTS_LOST:
                        click.echo("The queue has lost some events: going on with the rest.", err=True)
                    elif "data" in event:
                        yield event["data"]
            click.echo(f"{name} went away: waiting for it.", err=True)
        except requests.RequestException as failed:
            if said != "is back" or not is_temporary(failed):
                raise
        time.sleep(retry)
