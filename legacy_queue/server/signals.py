"""The signals that end a process: SIGTERM, SIGINT, and SIGHUP unless nohup has started it.

A parent may leave them ignored or blocked: a shell script ignores SIGINT in its background commands. The
commands that run until a signal handle them anyway, and their children have the default handlers. This module
is quick to import.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that end this process."""
    has_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if has_nohup else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def handle_stop(handler: Callable[[int, FrameType | None], None]) -> None:
    """Call the handler in the main thread at each signal."""
    numbers = stop_signals()
    for number in numbers:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def exit_on_signal(code: int) -> None:
    """From now on a signal ends the process at once, without any cleanup."""
    handle_stop(lambda *_: os._exit(code))


def interrupt_on_signal() -> None:
    """From now on the first signal raises KeyboardInterrupt in the main thread; later signals are ignored."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        handle_stop(lambda *_: None)
        raise KeyboardInterrupt

    handle_stop(interrupt)


def stop_with_stdin() -> None:
    """Wait for the end of standard input, then send this process a SIGTERM. For a thread or a greenlet."""
    owner = os.getpid()
    while True:
        select.select([0], [], [])  # under gevent other greenlets run meanwhile
        if os.getpid() != owner:  # a fork must not read the owner's input
            return None
        try:
            if not os.read(0, 65536):
                return os.kill(owner, signal.SIGTERM)
        except OSError:  # a terminal, read in its background, or closed: that sends a SIGHUP
            time.sleep(1)
