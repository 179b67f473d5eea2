"""The command ``legacy-queue``.

The subcommands that run until a signal handle signals before anything is imported that takes long.
"""

import os
import sys

from legacy_queue.cli.signals import exit_on_signal

_SERVICES = ("serve", "resolve", "up", "worker", "events", "requests")
_CUT_OFF = 130  # the exit code of a demonstration that did not come to its end


def main() -> None:
    """Run the command that the command line names.

    One that runs until a signal exits without the interpreter's own tidying up, which takes long.
    """
    is_service = len(sys.argv) > 1 and sys.argv[1] in _SERVICES
    if is_service:
        exit_on_signal(_CUT_OFF if "--demo" in sys.argv else 0)
    from legacy_queue.cli.commands import commands

    try:
        commands()
    except SystemExit as ended:  # in a server's own processes too
        if not is_service or not isinstance(ended.code, int | None):
            raise
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None where the process was started without
            stream.flush()
        os._exit(ended.code or 0)


if __name__ == "__main__":
    main()
