"""SIGTERM and SIGINT, from the start of a process to its end.

A parent may leave them ignored (a script does that to what it runs in the background) or blocked. The
commands that run until a signal handle both all the same, and what they start has the defaults. Nothing here
takes long to import.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGINT)


def exit_when_told(code: int) -> None:
    """From now on either signal ends the process at once: as long as nothing was begun that needs an end."""
    _handle(ENDS, lambda _number, _frame: os._exit(code))


class Told(SystemExit):
    """The process was told to end; its exit code is 0."""


class Unwinding:
    """The first signal raises Told in the main thread; those that follow find the process ending already.

    ``is_told`` says so too, because a callback of the interpreter may swallow what is raised in it.
    ``hangs_up``: the end of its terminal is a signal to this process.
    """

    def __init__(self) -> None:
        self.is_told = False
        # a closed terminal is the same, unless nohup has started this
        self.hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        _handle((*ENDS, signal.SIGHUP) if self.hangs_up else ENDS, self._hear)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if not self.is_told:
            self.is_told = True
            raise Told(0)


class Signals:
    """Either signal as a number to wait for: none is lost, whichever thread receives it and whenever."""

    def __init__(self) -> None:
        self._news, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        signal.set_wakeup_fd(self._tell)
        _handle(ENDS, lambda _number, _frame: None)

    def tell(self) -> None:
        """Have ``wait`` return 0, which is no signal's number."""
        os.write(self._tell, b"\0")

    def wait(self, seconds: float | None = None) -> int | None:
        """The next number; None if there is none in so many seconds."""
        is_there, _, _ = select.select([self._news], [], [], seconds)
        return os.read(self._news, 1)[0] if is_there else None


def _is_in_background() -> bool:
    """Whether standard input is a terminal that belongs to other processes now."""
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        return False


def stop_with_stdin() -> None:
    """Send this process a SIGTERM once the holder of the other end of its standard input is gone.

    For a thread, or a greenlet.
    """
    owner = os.getpid()
    while True:
        select.select([0], [], [])  # under gevent this keeps nothing else waiting
        if os.getpid() != owner:  # in a fork, which must not read what is the owner's
            return
        try:
            is_open = bool(os.read(0, 65536))
        except OSError:  # of a terminal that is gone, or that another process reads
            is_open = _is_in_background()
            time.sleep(1)
        if not is_open:
            os.kill(owner, signal.SIGTERM)
            return


def _handle(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> None:
    for number in numbers:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
