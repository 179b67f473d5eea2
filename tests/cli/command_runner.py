"""Runs commands in the test's process. They call a queue on loopback, or a server that is not a queue."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from click.testing import CliRunner, Result
from structlog.testing import capture_logs
from werkzeug.serving import make_server

from legacy_queue.cli.commands import commands
from legacy_queue.testing.server_process import client_variables
from tests.http.calls import ROOT, Queue
from tests.memory_server import FakeClock, Quiet

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"

Asking = Callable[..., Result]


def env_for(root_url: str) -> dict[str, str]:
    """The variables that lead commands to the server at this URL."""
    credentials = {"clientId": ROOT.client_id, "accessToken": ROOT.access_token}
    return client_variables({"rootUrl": root_url, "credentials": credentials})


def ask_at(root_url: str, *words: str, **env: str) -> Result:
    """Run ``legacy-queue`` with these words and variables against the server at this URL."""
    return CliRunner().invoke(commands, words, env=env_for(root_url) | env)


class ServedQueue(Queue):
    """A queue in this process, with control. Commands call it over HTTP, and the test calls it directly."""

    def __init__(self, port: int, **settings: Any) -> None:
        self.root_url, self.pool = f"http://127.0.0.1:{port}", {"provisionerId": "system"}
        # starts at the real time, because commands sign with that
        super().__init__(clock=FakeClock(), control=True, **settings)

    def command(self, *words: str, **env: str) -> Result:
        return ask_at(self.root_url, *words, **env)


@contextmanager
def served(**settings: Any) -> Iterator[ServedQueue]:
    """Serve a new queue on loopback while the context lasts. It logs nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener, capture_logs():
        host, port = listener.getsockname()
        queue = ServedQueue(port, **settings)
        app, fd = queue.server.app, listener.fileno()
        with _serving(make_server(host, port, app, threaded=True, request_handler=Quiet, fd=fd)):
            yield queue


@contextmanager
def answering(*answers: tuple[int, str] | tuple[int, str, dict[str, str]]) -> Iterator[str]:
    """The root URL of a server that gives these answers in turn: status, body, headers.

    It closes the connection for status 0.
    """
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, *headers = left.pop(0)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if status:
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

        do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    with _serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
    assert not left


@contextmanager
def _serving(server: HTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def printed(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.output


def from_json(result: Result) -> Any:
    return json.loads(printed(result))


def refused(result: Result, exit_code: int = 1) -> str:
    """Check that a command failed. Returns the last line that it printed."""
    assert result.exit_code == exit_code, result.output
    return result.output.splitlines()[-1]
