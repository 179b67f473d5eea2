"""A task's command as a process group: started, waited for, and ended with all that it has started."""

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from legacy_queue.worker.payload import MalformedPayload, Payload

# Of the worker's own environment a task gets these and no other: not, for one, its credentials, though
# nothing keeps a task from looking for them in /proc.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")

# What the operating system says of a command that no machine like this one could run.
_NOT_RUNNABLE = frozenset(
    {
        errno.ENOENT,
        errno.EACCES,
        errno.ENOEXEC,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.E2BIG,
    }
)


class Command:
    """A command that runs in a session of its own; ``end`` must be called in every case."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._watch: threading.Thread | None = None

    @classmethod
    def start(
        cls, payload: Payload, names: Mapping[str, str], directory: Path, output: IO[bytes]
    ) -> "Command":
        """Start the command in ``directory``, its standard output and error going to ``output``.

        ``names`` (TASK_ID, RUN_ID) and then the payload's env are added to the environment. Raises
        MalformedPayload when there is no such command to run, OSError when that is not the task's fault.
        """
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            process = subprocess.Popen(  # noqa: S603  running what a task says is a worker's purpose
                payload.arguments,
                env={**inherited, **names, **payload.env},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as failure:
            if failure.errno in _NOT_RUNNABLE:
                raise MalformedPayload(f"payload.command cannot be run: {failure.strerror}") from None
            raise
        return cls(process)

    def call_at_exit(self, on_exit: Callable[[], None]) -> None:
        """Have ``on_exit`` called, by another thread, once the command itself has ended."""
        self._watch = threading.Thread(target=self._await_exit, args=[on_exit], daemon=True)
        self._watch.start()

    def kill(self) -> None:
        """Kill the whole process group. Its leader is not waited for before, so the id is still its own."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill what is left of the process group; the command's exit code, -9 for one killed just now."""
        self.kill()
        if self._watch:
            self._watch.join()
        return self._process.wait()

    def _await_exit(self, on_exit: Callable[[], None]) -> None:
        # Not reaped here: while the leader is a zombie, no other group can get its id.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        on_exit()
