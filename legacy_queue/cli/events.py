"""legacy-queue events: a line for each event."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click
import requests

from legacy_queue.cli.queue_options import (
    client_options,
    credentials_for,
    is_url,
    local_server,
    no_answer,
    refused,
    said_of,
)
from legacy_queue.credentials import unsigned
from legacy_queue.domain.times import format_time
from legacy_queue.testing.queue_http import parse_events
from legacy_queue.testing.summary import state_words

_TIMEOUTS = 10.0, 45.0  # seconds to connect, and without a byte: the server sends a comment every 15


@click.command()
@client_options
@click.option("--exchange", help="Such as task-pending.")
@click.option("--routing-key", default="#", help="A pattern, as in a binding of a queue.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each event.")
def events(
    root_url: str | None,
    client_id: str | None,
    access_token: str | None,
    certificate: str | None,
    exchange: str | None,
    routing_key: str,
    as_json: bool,
) -> None:
    """Print the events of a server without a broker as they happen, until SIGTERM or Ctrl-C. Needs no
    credentials while anonymous-scopes has queue:events.

    Of several server processes, these are the events of one. If the server has a broker, the command says how
    to consume the events there.

    When the queue is back after an interruption, the events since then are printed, if it still has them.
    """
    local = local_server()
    root_url = root_url or local.get("rootUrl", "http://127.0.0.1:8080")
    if not is_url(root_url):
        raise click.UsageError(f"{said_of(root_url)}Give the root URL, such as http://127.0.0.1:8080")
    query = {"routingKey": routing_key, **({"exchange": exchange} if exchange else {})}
    url = f"{root_url.rstrip('/')}/events"
    credentials = credentials_for(url, local, client_id, access_token, certificate)
    sign = credentials.sign if credentials else unsigned
    for data in _follow(url, query, sign):  # a signal ends the process
        click.echo(data if as_json else _line(json.loads(data)))


def _line(event: Mapping[str, Any]) -> str:
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


def _follow(
    url: str, query: Mapping[str, str], sign: Callable[[requests.PreparedRequest], requests.PreparedRequest]
) -> Iterator[str]:
    """The data of each event, from one stream after the other. If the first is refused, the command ends."""
    root_url = url.removesuffix("/events")
    last_id = ""
    retry = 2.0
    was_followed = False
    is_followed = False
    while True:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        try:
            with requests.get(
                url, query, headers=headers, auth=sign, stream=True, timeout=_TIMEOUTS
            ) as answer:
                if answer.status_code < 500 or not was_followed:
                    _check(answer)
                    said = "is back" if was_followed else "is being followed; Ctrl-C ends it"
                    click.echo(f"The queue at {root_url} {said}.", err=True)
                    was_followed = is_followed = True
                    for fields in parse_events(answer.iter_lines(chunk_size=None)):
                        retry = int(fields["retry"]) / 1000 if "retry" in fields else retry
                        last_id = fields.get("id", last_id)
                        if fields.get("event") == "begins-anew":
                            lost = "The queue has lost some events: going on with the rest."
                            click.echo(lost, err=True)
                        elif "data" in fields:
                            yield fields["data"]
        except requests.RequestException as error:
            if not was_followed:
                raise no_answer(root_url, error) from None
        if is_followed:
            click.echo(f"The queue at {root_url} went away: waiting for it.", err=True)
            is_followed = False
        time.sleep(retry)


def _check(answer: requests.Response) -> None:
    if answer.status_code != 200:
        raise refused(answer)
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        raise click.ClickException("the server at this URL is not a queue: it sends no events")
