"""A server that this process has of its own over a folder: found, started, watched, restarted and stopped.

It is ended by SIGTERM, and by the end of this process, which it hears of by the end of its standard input.
Two of them on one folder would spoil it: the folder is locked, and the lock lives until both this process and
the server are gone. Nothing here reads settings, logs or starts a thread, and the server writes to a file, so
that it never waits for somebody to read.
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

from legacy_queue.adapters.private_folder import (
    UMASK,
    make_private,
    private_opener,
    tighten_all,
    write_private,
)

HOST = "127.0.0.1"
_LAST_SAVE = 60.0  # seconds: of a very large folder; about one as a rule
_LOCK_TIMEOUT = 2.0  # seconds, for a holder that is ending: a server that saves after its owner has died
_LOOK_AGAIN = 0.02  # seconds
_TRIES = 3  # of ports that the system said are free

Ports = Mapping[str, int]
Command = tuple[list[str], dict[str, str]]  # and its environment


class Busy(Exception):
    """Another program has this address."""


class ManagedProcess(ABC):
    """One server over one folder, on ports that stay the same for as long as they can be had.

    The folder is made where it is missing, and all in it is for its owner alone. The ports are those that
    this folder had the last time, or new ones where another program has taken one of those.
    """

    NAME: ClassVar[str]
    UNAVAILABLE: ClassVar[type[Exception]]

    def __init__(self, folder: Path, start_timeout: timedelta) -> None:
        self._folder, self._start_timeout = folder, start_timeout.total_seconds()
        self._remembered = folder / "ports.json"
        self._ports: Ports = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None
        # a fork holds neither lock nor standard input: the server ends when its owner does
        disown = weakref.WeakMethod(self._disown)
        os.register_at_fork(after_in_child=lambda: (method := disown()) and method())

    @abstractmethod
    def _command(self, ports: Ports) -> Command:
        """The command that listens on these ports; raises UNAVAILABLE."""

    @abstractmethod
    def _free_ports(self) -> Ports:
        """Ports that nobody has; 0 lets the server choose."""

    @abstractmethod
    def _listening(self, said: str, ports: Ports) -> Ports | None:
        """The real ports once what it has said tells that it serves on all of them; raises Busy."""

    def start(self) -> Self:
        """The server answers when this returns; after UNAVAILABLE nothing is left of the attempt."""
        lock = self._locked()
        try:
            try:
                self._ports = self._settle(lock)
            finally:
                self._lock = lock  # not before: gevent's Popen forks as others do, and needs it in the child
            write_private(self._remembered, json.dumps(self._ports) + "\n")
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self) -> None:
        """The server answers again on the ports it had, whether it was alive or dead; may be tried again.

        Raises UNAVAILABLE, also when somebody else took a port meanwhile.
        """
        self.stop()
        self.start()

    def stop(self) -> None:
        """The server has saved and is gone, and the folder is free; harmless when it was not running."""
        self._end()
        self._disown()

    def alive(self) -> bool:
        """The server has not ended; right even where somebody else reaps this process's children."""
        if self._process is None or self._process.poll() is not None:
            return False
        try:  # gevent's poll knows only of what gevent has reaped
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process that was started last, alive or not; None before start and after stop."""
        return self._process.pid if self._process else None

    def _locked(self) -> IO[bytes]:
        """The open file whose lock says that the folder is ours, for as long as any process has it open."""
        try:
            make_private(self._folder)
            tighten_all(self._folder)
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
            time.sleep(_LOOK_AGAIN)
        with lock:
            lock.seek(0)
            holder = lock.read(32).decode(errors="replace").strip()
        raise self.UNAVAILABLE(
            f"The data folder {self._folder} is in use by process {holder}: stop it or choose another folder."
        )

    def _settle(self, lock: IO[bytes]) -> Ports:
        taken = ""
        for ports in self._candidates():
            try:
                return self._listen(ports, lock)
            except Busy as busy:
                taken = str(busy)
                self._end()
        raise self.UNAVAILABLE(f"{self.NAME} cannot listen on {taken}: another program has that port.")

    def _candidates(self) -> Iterator[Ports]:
        if self._ports:  # it was started before, and a restart stays where it was
            yield self._ports
            return
        if remembered := self._read_ports():
            yield remembered
        for _ in range(_TRIES):
            yield self._free_ports()

    def _read_ports(self) -> Ports | None:
        """Those that this folder had the last time."""
        with suppress(OSError, ValueError):  # none yet, or not ours
            remembered = json.loads(self._remembered.read_text())
            if isinstance(remembered, dict) and remembered.keys() == self._free_ports().keys():
                return remembered
        return None

    def _listen(self, ports: Ports, lock: IO[bytes]) -> Ports:
        """The real ports of a process that was started and listens on all of them."""
        words, environment = self._command(ports)
        log = self._folder / f"{self.NAME.lower()}.log"
        with open(log, "wb", opener=private_opener) as output:
            self._process = subprocess.Popen(  # noqa: S603 our own words, no shell
                words,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # a terminal's Ctrl-C is for its owner, who then ends it
                pass_fds=[lock.fileno()],
                umask=UMASK,
            )
        deadline = time.monotonic() + self._start_timeout
        while True:
            ended = not self.alive()  # asked before reading, so that its last words are read
            said = log.read_text(errors="replace")
            if found := self._listening(said, ports):
                return found
            if ended:
                raise self.UNAVAILABLE(
                    f"{self.NAME} ended while it started; it said {_gist(said)}, see {log}."
                )
            if time.monotonic() > deadline:
                raise self.UNAVAILABLE(
                    f"{self.NAME} did not begin to listen within {self._start_timeout:g} s; see {log}."
                )
            time.sleep(_LOOK_AGAIN)

    def _end(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        is_alive = self.alive()
        self._process.stdin.close()  # the same as SIGTERM, for one that is too young to hear a signal
        if not is_alive:
            return
        self._process.terminate()
        try:
            self._process.wait(_LAST_SAVE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _disown(self) -> None:
        """Let go of the process and of the lock, without a word to either."""
        if self._process is not None and self._process.stdin is not None:
            self._process.poll()  # in a fork: not our child, hence ended
            self._process.stdin.close()
        if self._lock is not None:
            self._lock.close()
        self._process = self._lock = None


def _gist(said: str) -> str:
    plain = re.sub(r"\x1b\][^\x07]*\x07", "", said)  # without the titles of a terminal's window
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\b(\w*Error|error|E[A-Z]{4,})\b", line)] or lines[-3:]
    return repr(" | ".join(line[:300] for line in telling[:3])) if telling else "nothing"
