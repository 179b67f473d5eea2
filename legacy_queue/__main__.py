"""The command ``legacy-queue``.

A command that runs until a signal handles signals first of all: its imports take long enough to be
interrupted.
"""

import os
import sys

from legacy_queue.cli.command_table import COMMANDS
from legacy_queue.server.signals import exit_on_signal

_INTERRUPTED = 130  # the exit code of an interrupted demonstration


def main() -> None:
    """Run the command that the command line names."""
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    is_service = named in COMMANDS and COMMANDS[named].runs_until_signal
    if is_service:
        exit_on_signal(_INTERRUPTED if "--demo" in sys.argv else 0)
    from legacy_queue.cli.commands import commands

    try:
        commands()
    except SystemExit as ended:  # also in the processes that a server forks
        if not is_service or not isinstance(ended.code, int | None):
            raise
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None if the process was started without it
            stream.flush()
        os._exit(ended.code or 0)


if __name__ == "__main__":
    main()
