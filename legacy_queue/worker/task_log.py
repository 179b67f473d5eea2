"""A task's log: the output of its command and the worker's own lines, readable while it grows.

``public/logs/live.log`` refers to it by HTTP until the task ends. Only this machine can reach that URL. The
URL is secret, since tasks of other users may run here too; only the artifact holds it.
"""

import os
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Self

from legacy_queue.worker.http_client import PIECE
from legacy_queue.worker.worker_settings import WorkerClock

POLL_INTERVAL = 0.1  # seconds between two reads of a log that grows
HOST = "127.0.0.1"
LOG_TYPE = "text/plain; charset=utf-8"

Output = IO[bytes] | None  # None is the worker's own standard output


class TaskLog:
    """A file without a name; ``file`` and ``say`` write to it, and a thread copies it to ``output``."""

    def __init__(self, clock: WorkerClock, output: Output) -> None:
        self._target = output.fileno() if output else 1
        self._clock = clock
        self._ended = threading.Event()
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by __exit__
        self._copying = threading.Thread(target=self._copy, daemon=True)

    def __enter__(self) -> Self:
        self._copying.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._copying.join()
        self.file.close()

    def say(self, sentence: str) -> None:
        """Write a line of the worker's own."""
        self.file.write(f"[worker] {sentence}\n".encode(errors="replace"))

    def end(self) -> None:
        """Let every ``follow`` end after the bytes that are written now."""
        self._ended.set()

    def follow(self) -> Iterator[bytes]:
        """Yield the log from its start to its end, as it is written."""
        own, at = os.dup(self.file.fileno()), 0
        try:
            while True:
                has_ended = self._ended.is_set()
                while piece := os.pread(
                    own, PIECE, at
                ):  # not read(): the command writes at the file's offset
                    at += len(piece)
                    yield piece
                if has_ended:
                    return
                self._clock.wait(self._ended, POLL_INTERVAL)
        finally:
            os.close(own)

    def _copy(self) -> None:
        with (
            suppress(OSError),
            open(self._target, "wb", closefd=False) as target,
        ):  # its reader may have ended
            for piece in self.follow():
                target.write(piece)
                target.flush()


class LiveLogs(ThreadingHTTPServer):
    """A server on a free port of the loopback interface; the caller must call ``close`` in every case."""

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Handler)
        self.logs: dict[str, TaskLog] = {}  # by path
        self._thread = threading.Thread(target=self.serve_forever, args=[POLL_INTERVAL], daemon=True)
        self._thread.start()

    @contextmanager
    def serve(self, log: TaskLog) -> Iterator[str]:
        """The URL of the log while the context lasts."""
        path = f"/log/{secrets.token_urlsafe(16)}"
        self.logs[path] = log
        try:
            yield f"http://{HOST}:{self.server_address[1]}{path}"
        finally:
            del self.logs[path]

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: LiveLogs
    timeout = 60  # seconds, for a client that does not read

    def do_GET(self) -> None:
        with suppress(OSError, ValueError):  # the client has disconnected, or the log was closed just now
            if (log := self.server.logs.get(self.path)) is None:
                self.send_error(
                    404, "There is no such log, or its task has ended: request the artifact again"
                )
                return
            self.send_response(200)
            self.send_header("Content-Type", LOG_TYPE)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            for piece in log.follow():
                self.wfile.write(piece)

    def log_message(self, *_: object) -> None:
        """Log nothing: the path is secret."""
