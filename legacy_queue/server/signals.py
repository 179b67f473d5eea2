"""SIGTERM and SIGINT, from the start of a process to its end.

A parent may leave them ignored or blocked: a shell script ignores SIGINT in its background commands. The
commands that run until a signal handle both anyway, and their children have the default handlers. This module
is quick to import.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGINT)


def exit_on_signal(code: int) -> None:
    """From now on either signal ends the process at once, without any cleanup."""

    def end(_number: int, _frame: FrameType | None) -> None:
        os._exit(code)

    _handle(ENDS, end)


class StopSignal(SystemExit):
    """The signal ``number`` ends this process, with the exit code 0."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.number = number


class StopHandler:
    """Raises StopSignal in the main thread at the first signal, and ignores later signals.

    ``is_stopping`` is set too, because the interpreter swallows an exception that a callback of its own
    raises. Other handlers take over by setting ``is_replaced``. ``handles_hangup``: the end of the terminal
    is a signal as well, unless nohup has started this process.
    """

    def __init__(self) -> None:
        self.is_stopping = self.is_replaced = False
        self.handles_hangup = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        _handle((*ENDS, signal.SIGHUP) if self.handles_hangup else ENDS, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self._stop(StopSignal(number))

    def _stop(self, stop_signal: StopSignal) -> None:
        raise stop_signal


def _is_in_background() -> bool:
    """Whether standard input is a terminal whose foreground is another process group."""
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        return False


def stop_with_stdin() -> None:
    """Wait for the end of standard input, then send this process a SIGTERM. For a thread or a greenlet."""
    owner = os.getpid()
    while True:
        select.select([0], [], [])  # under gevent other greenlets run meanwhile
        if os.getpid() != owner:  # a fork must not read the owner's input
            return
        try:
            is_open = bool(os.read(0, 65536))
        except OSError:  # the terminal is closed, or another process reads it
            is_open = _is_in_background()
            time.sleep(1)
        if not is_open:
            os.kill(owner, signal.SIGTERM)
            return


def _handle(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> None:
    for number in numbers:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
