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


def exit_on_signal(code: int, last: Callable[[], None] = lambda: None) -> None:
    """From now on either signal ends the process at once, after ``last``: it must need no other end."""

    def end(_number: int, _frame: FrameType | None) -> None:
        last()
        os._exit(code)

    _handle(ENDS, end)


class StopSignal(SystemExit):
    """The process was told to end, by the signal ``number``; its exit code is 0."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.number = number


class Unwinding:
    """The first signal raises Told in the main thread; those that follow find the process ending already.

    ``is_stopping`` says so too, because a callback of the interpreter may swallow what is raised in it.
    ``is_over`` is set by who handles the signals from then on.
    ``hangs_up``: the end of its terminal is a signal to this process.
    """

    def __init__(self) -> None:
        self.is_stopping = self.is_over = False
        # a closed terminal is the same, unless nohup has started this
        self.hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        _handle((*ENDS, signal.SIGHUP) if self.hangs_up else ENDS, self._hear)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self._unwind(StopSignal(number))

    def _unwind(self, told: StopSignal) -> None:
        raise told


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
