"""``GET /events`` and ``legacy-queue events`` without a broker."""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from legacy_queue.testing.server_sent_events import parse_events

from .http_queue import Queue, definition
from .processes import LONG, Server, run, serve, wait_until

TYPE = "followed"


class Stream:
    """Server-sent events as they come; ``last_id`` is the id of the last event that was read."""

    def __init__(self, answer: requests.Response) -> None:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
        self._events = parse_events(answer.iter_lines(chunk_size=None))
        self.last_id = ""

    def read(self, count: int) -> list[str]:
        """The exchange and task of each of the next ``count`` events, fewer if the server ends the stream.

        ``begins-anew`` stands for the event of that name, which has no task.
        """
        events: list[str] = []
        for fields in self._events if count else ():
            self.last_id = fields.get("id", self.last_id)
            if fields.get("event") == "begins-anew":
                events.append("begins-anew")
            elif "data" in fields:
                event = json.loads(fields["data"])
                status = event["payload"].get("status", {})
                events.append(f"{event['exchange'].rpartition('/')[2]} {status.get('taskId')}")
            if len(events) == count:
                break
        return events


@contextmanager
def following(server: Server, last_id: str = "", pattern: str = "primary.#") -> Iterator[Stream]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    query = {"routingKey": pattern}
    with requests.get(
        f"{server.root_url}/events", params=query, headers=headers, stream=True, timeout=LONG
    ) as answer:
        yield Stream(answer)


def pending(task_id: str) -> list[str]:
    return [f"task-defined {task_id}", f"task-pending {task_id}"]


def test_a_stream_ends_with_its_server_and_begins_anew_at_the_next_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    options = ("--port", port, "--storage", "memory")
    with serve(tmp_path / "first", *options) as server:
        root_url = server.root_url
        with (
            run(tmp_path / "command", "events", "--root-url", root_url, "--json") as command,
            following(server) as stream,
        ):
            wait_until(lambda: "is being followed" in command.errors)
            first = Queue(server).create(definition(TYPE))
            assert stream.read(2) == pending(first)
            wait_until(lambda: command.output.count("\n") == 2)
            server.send(signal.SIGTERM)
            assert stream.read(1) == []
            assert server.wait() == 0
            with serve(tmp_path / "second", *options) as server:
                second = Queue(server).create(definition(TYPE))
                with following(server, stream.last_id) as resumed:
                    assert resumed.read(3) == ["begins-anew", *pending(second)]
                wait_until(lambda: command.output.count("\n") == 4)
                events = [json.loads(line) for line in command.output.splitlines()]
                assert [event["payload"]["status"]["taskId"] for event in events] == [
                    first,
                    first,
                    second,
                    second,
                ]
                assert "lost some events" in command.errors
                assert command.end(signal.SIGINT) == 0, command.errors
