"""gunicorn's arbiter as `legacy-queue serve` runs it: the parent of the server processes."""

import logging
import os
import signal
from typing import Any, NoReturn

import structlog
from gunicorn import arbiter
from gunicorn.app.base import BaseApplication

from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.server.gunicorn_worker import WORKER_SIGNALS
from legacy_queue.server.signals import stop_signals

log = structlog.get_logger()

# on these signals gunicorn would change its number of processes, start itself again, or leave the terminal
_IGNORED = (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2, signal.SIGWINCH)


class Arbiter(arbiter.Arbiter):
    """gunicorn's arbiter. It ends with exit code 1 when its Azurite or the process with the memory ends.

    The process with the memory is the one that serves ``--storage memory``. An Azurite that died before it
    saved its state may have lost tables, queues and rows that the server processes remember. So everything
    ends, and a supervisor can start it again.
    """

    def __init__(self, app: BaseApplication, azurite: Azurite | None, in_memory: bool) -> None:
        self._azurite = azurite
        self._in_memory = in_memory
        # True if the system had too little memory or too few processes left at the last fork
        self._is_short = False
        super().__init__(app)
        logging.getLogger("gunicorn.error").propagate = True  # so that it goes to the log of all libraries

    def init_signals(self) -> None:
        """Install the handlers. A closed terminal ends the server, unless nohup started it."""
        has_nohup = signal.SIGHUP not in stop_signals()
        super().init_signals()
        for number in (*_IGNORED, *([signal.SIGHUP] if has_nohup else [])):
            signal.signal(number, signal.SIG_IGN)

    def handle_hup(self) -> None:
        """Handle SIGHUP like SIGTERM."""
        self.handle_term()

    def spawn_worker(self) -> Any:
        """Start a server process. A signal to it waits until its handlers are installed.

        If the system has no room for another process, the others go on. gunicorn tries again each second.
        """
        if self._in_memory and self.worker_age:
            self._fail(
                "server-process-ended",
                why="all tasks were in its memory and are lost: start the server again",
            )
        arbiter_pid = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, WORKER_SIGNALS)
        try:
            pid = super().spawn_worker()
        # this is in the new process: with that exit code, gunicorn would end the other processes too
        except SystemExit as end:
            if end.code == self.WORKER_BOOT_ERROR and self.WORKERS:
                raise SystemExit(1) from None
            raise
        except OSError as error:
            if os.getpid() != arbiter_pid:
                raise
            if not self._is_short:
                log.error("server-process-not-started", error=error.strerror)
            self._is_short = True
            self.worker_age -= 1  # the number is still free
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, WORKER_SIGNALS)
        self._is_short = False
        return pid

    def murder_workers(self) -> None:
        """Check the processes. gunicorn calls this once a second."""
        if self._azurite and not self._azurite.alive():
            why = "the server ends as well: start it again"
            self._fail("azurite-ended", why=why, log=str(self._azurite.log))
        super().murder_workers()

    def _fail(self, event: str, **fields: str) -> NoReturn:
        log.error(event, **fields)
        self.stop()
        raise SystemExit(1)
