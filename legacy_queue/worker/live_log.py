"""The logs of running tasks, over HTTP, as they grow: what ``public/logs/live.log`` refers to at first.

Only this machine can reach it, and a log can be read only by its URL, which the artifact holds: tasks of
other users may run here too.
"""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from legacy_queue.worker.task_log import TaskLog

HOST = "127.0.0.1"
END_WITHIN = 0.1  # seconds
CONTENT_TYPE = "text/plain; charset=utf-8"


class LiveLogs:
    """A server on a free port of the loopback interface; ``close`` must be called in every case."""

    def __init__(self) -> None:
        self._logs: dict[str, TaskLog] = {}
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self._logs))
        self._thread = threading.Thread(target=self._server.serve_forever, args=[END_WITHIN], daemon=True)
        self._thread.start()

    @contextmanager
    def serve(self, log: TaskLog) -> Iterator[str]:
        """The URL under which the log can be read for as long as the context lasts."""
        path = f"/log/{secrets.token_urlsafe(16)}"
        self._logs[path] = log
        try:
            yield f"http://{HOST}:{self._server.server_address[1]}{path}"
        finally:
            del self._logs[path]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(logs: dict[str, TaskLog]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 60  # seconds, for a client that does not read

        def do_GET(self) -> None:
            with suppress(OSError, ValueError):  # the client has disconnected, or the log was closed just now
                if (log := logs.get(self.path)) is None:
                    self.send_error(404, "There is no such log, or its task has ended: ask the queue again")
                    return
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                for piece in log.follow():
                    self.wfile.write(piece)

        def log_message(self, *_: object) -> None:
            """Log nothing: the path is what makes a log readable."""

    return Handler
