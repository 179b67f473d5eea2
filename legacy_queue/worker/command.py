"""A task's command as a process group: started, waited for, and ended with all that it has started."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from errno import E2BIG, EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, ENOTDIR
from pathlib import Path
from typing import IO

from legacy_queue.worker.payload import MalformedPayload, Payload

# Of the worker's own environment a task gets only these. Its credentials are not among them, but nothing
# keeps a task from looking for them in /proc.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")

# What the operating system says of a command that no machine like this could run.
_NOT_RUNNABLE = {ENOENT, EACCES, ENOEXEC, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, E2BIG}


class Command:
    """A command that runs in a session of its own; ``end`` must be called in every case."""

    def __init__(
        self,
        payload: Payload,
        names: Mapping[str, str],
        directory: Path,
        output: IO[bytes],
        on_exit: Callable[[], None],
    ) -> None:
        """Start the command in ``directory``, its standard output and error going to ``output``.

        ``names`` (TASK_ID, RUN_ID) and then the payload's env are added to the environment. ``on_exit`` is
        called, by another thread, once the command itself has ended. Raises MalformedPayload when there is no
        such command to run, OSError when that is not the task's fault.
        """
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603  running what a task says is a worker's purpose
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

        def wait() -> None:
            # Not reaped here: while the leader is a zombie, no other group can get its id.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            on_exit()

        self._waiting = threading.Thread(target=wait, daemon=True)
        self._waiting.start()

    def kill(self) -> None:
        """Kill the whole process group. Its leader is not waited for before, so the id is still its own."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill what is left of the process group; the command's exit code, -9 if it was killed just now."""
        self.kill()
        self._waiting.join()
        return self._process.wait()
