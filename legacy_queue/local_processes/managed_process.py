"""A server process over a folder, started, watched and stopped by this process.

The server ends by SIGTERM, and with this process, by the end of its standard input. The folder is locked,
since two servers would damage it; the lock lasts until both this process and the server have ended. This
module reads no settings, does not log and starts no thread. The server writes its output to a file, so that
it never blocks.
"""

import json
import os
import re
import subprocess
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, ClassVar, Self

from filelock import lock_descriptor

from legacy_queue.private_folder import (
    UMASK,
    make_private,
    private_opener,
    write_private,
)

HOST = "127.0.0.1"
_STOP_TIMEOUT = 60.0  # seconds, to save a very large folder
_LOCK_TIMEOUT = 2.0  # seconds, for a server that still saves after its owner has died
_POLL_INTERVAL = 0.02  # seconds
_MAX_TRIES = 3  # with free ports of the system

Ports = Mapping[str, int]
Command = tuple[list[str], dict[str, str]]  # and its environment


class Busy(Exception):
    """Another program uses this address."""


class ManagedProcess(ABC):
    """A server over a folder, on ports that stay the same as long as they are free.

    The folder is created where it is missing, and is private with everything in it. The ports are the last
    ports of this folder, or new ports if another program uses any of these.
    """

    NAME: ClassVar[str]
    UNAVAILABLE: ClassVar[type[Exception]]

    def __init__(self, folder: Path, start_timeout: timedelta) -> None:
        self._folder, self._start_timeout = folder, start_timeout.total_seconds()
        self._ports_file, self.log = folder / "ports.json", folder / f"{self.NAME.lower()}.log"
        self._ports: Ports = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None
        # a fork must hold neither lock nor standard input, so that the server ends with its owner
        disown = weakref.WeakMethod(self._disown)
        os.register_at_fork(after_in_child=lambda: (method := disown()) and method())

    @abstractmethod
    def _command(self, ports: Ports) -> Command:
        """The command that listens on these ports; raises UNAVAILABLE."""

    @abstractmethod
    def _free_ports(self) -> Ports:
        """Free ports; 0 lets the server choose."""

    @abstractmethod
    def _listening(self, output: str, ports: Ports) -> Ports | None:
        """The real ports, once the output shows that it listens on all of them; raises Busy."""

    def start(self) -> Self:
        """Return once the server answers. Raises UNAVAILABLE, and then nothing is left of the attempt."""
        lock = self._locked()
        try:
            try:
                self._ports = self._start_on_any(lock)
            finally:
                self._lock = lock  # not before the fork of gevent's Popen, whose child needs it
            write_private(self._ports_file, json.dumps(self._ports) + "\n")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> bool:
        """Let the server save and end, and free the folder. Safe to repeat.

        Returns False if the server was alive, and its exit code was then not 0.
        """
        has_ended_well = self._end()
        self._disown()
        return has_ended_well

    def alive(self) -> bool:
        """Whether the server runs, also where other code reaps the children of this process."""
        if self._process is None or self._process.poll() is not None:
            return False
        try:  # gevent's poll sees only what gevent has reaped
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The id of the last started process, alive or not; None before start and after stop."""
        return self._process.pid if self._process else None

    def _locked(self) -> IO[bytes]:
        """The open file that locks the folder, for as long as any process has it open."""
        try:
            make_private(self._folder)
            lock = open(self._folder / "lock", "a+b", buffering=0, opener=private_opener)  # noqa: SIM115
        except OSError as error:
            raise self.UNAVAILABLE(
                f"The data folder {self._folder} cannot be used: {error.strerror}."
            ) from error
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while time.monotonic() < deadline:
            if lock_descriptor(lock.fileno(), blocking=False):
                lock.truncate(0)
                lock.write(f"{os.getpid()}\n".encode())
                return lock
            time.sleep(_POLL_INTERVAL)
        with lock:
            lock.seek(0)
            holder = lock.read(32).decode(errors="replace").strip()
        raise self.UNAVAILABLE(
            f"The data folder {self._folder} is in use by process {holder}: stop it or choose another folder."
        )

    def _start_on_any(self, lock: IO[bytes]) -> Ports:
        taken = ""
        for ports in self._candidates():
            try:
                return self._listen(ports, lock)
            except Busy as busy:
                taken = str(busy)
                self._end()
        raise self.UNAVAILABLE(f"{self.NAME} cannot listen on {taken}: another program has that port.")

    def _candidates(self) -> Iterator[Ports]:
        if last := self._read_ports():
            yield last
        for _ in range(_MAX_TRIES):
            yield self._free_ports()

    def _read_ports(self) -> Ports | None:
        """The last ports of this folder."""
        with suppress(OSError, ValueError):  # missing or damaged
            ports = json.loads(self._ports_file.read_text())
            if isinstance(ports, dict) and ports.keys() == self._free_ports().keys():
                return ports
        return None

    def _listen(self, ports: Ports, lock: IO[bytes]) -> Ports:
        """Start the process; its real ports, once it listens on all of them."""
        words, environment = self._command(ports)
        with open(self.log, "wb", opener=private_opener) as output:
            self._process = subprocess.Popen(  # noqa: S603 - no shell
                words,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C of a terminal reaches only the owner, which then stops it
                pass_fds=[lock.fileno()],
                umask=UMASK,
            )
        deadline = time.monotonic() + self._start_timeout
        while True:
            ended = not self.alive()  # before its output is read, which is then complete
            said = self.log.read_text(errors="replace")
            if listening := self._listening(said, ports):
                return listening
            if ended:
                raise self.UNAVAILABLE(
                    f"{self.NAME} ended while it started; it said {_gist(said)}, see {self.log}."
                )
            if time.monotonic() > deadline:
                raise self.UNAVAILABLE(
                    f"{self.NAME} did not begin to listen within {self._start_timeout:g} s; see {self.log}."
                )
            time.sleep(_POLL_INTERVAL)

    def _end(self) -> bool:
        """As ``stop``, without freeing the folder."""
        if self._process is None or self._process.stdin is None:
            return True
        if not self.alive():
            self._process.stdin.close()
            return True
        self._process.terminate()  # it may end at the end of its input, and this would then kill it
        self._process.stdin.close()  # as SIGTERM, for a process that does not handle signals yet
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._process.returncode == 0

    def _disown(self) -> None:
        """Forget the process and the lock, without ending either."""
        if self._process is not None and self._process.stdin is not None:
            self._process.poll()  # in a fork it is no child, and counts as ended
            self._process.stdin.close()
        if self._lock is not None:
            self._lock.close()
        self._process = self._lock = None


def _gist(said: str) -> str:
    plain = re.sub(r"\x1b\][^\x07]*\x07", "", said)  # without window titles
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(\w*Error|error|E[A-Z]{4,})\b", line)] or lines[-3:]
    return repr(" | ".join(line[:300] for line in errors[:3])) if errors else "nothing"
