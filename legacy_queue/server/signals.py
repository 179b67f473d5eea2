"""The signals that end a process: SIGTERM, SIGINT, and SIGHUP unless nohup has started it.

A parent process may have left them ignored or blocked. For example, a shell script ignores SIGINT in its
background commands. The commands that run until a signal handle these signals anyway, and their children get
the default handlers. Keep this module quick to import.
"""

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns the signals that end this process."""
    has_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if has_nohup else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def handle_stop(handler: Callable[[int, FrameType | None], None]) -> None:
    """Call the handler in the main thread on each of these signals."""
    numbers = stop_signals()
    for number in numbers:
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def exit_on_signal(code: int) -> None:
    """Let a signal end the process at once, without any cleanup."""
    handle_stop(lambda *_: os._exit(code))


def interrupt_on_signal() -> None:
    """Let the first signal raise KeyboardInterrupt in the main thread, and ignore later signals."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        handle_stop(lambda *_: None)
        raise KeyboardInterrupt

    handle_stop(interrupt)


def stop_with_stdin() -> None:
    """Wait until standard input ends, then send this process a SIGTERM. Run it in a thread or a greenlet."""
    owner = os.getpid()
    while True:
        select.select([0], [], [])  # under gevent, other greenlets run meanwhile
        if os.getpid() != owner:  # a forked process must not read its parent's input
            return None
        try:
            if not os.read(0, 65536):
                return os.kill(owner, signal.SIGTERM)
        # a terminal that is closed (it sends SIGHUP), or that this process may not read in the background
        except OSError:
            time.sleep(1)
