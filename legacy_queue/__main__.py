"""The command ``legacy-queue``.

The subcommands that run until a signal handle signals before anything is imported that takes long.
"""

import os
import sys

from legacy_queue.cli.signals import exit_when_told

_SERVICES = ("serve", "resolve", "up", "worker", "events")
_CUT_OFF = 130  # the exit code of a demonstration that did not come to its end


def main() -> None:
    """Run the command that the command line names."""
    if sys.argv[1:2] and sys.argv[1] in _SERVICES:
        exit_when_told(_CUT_OFF if "--demo" in sys.argv else 0)
        _serve()
    else:
        from legacy_queue.cli.commands import commands

        commands()


def _serve() -> None:
    """Run the command, and exit without the interpreter's own tidying up, which takes long."""
    from legacy_queue.cli.commands import commands

    try:
        commands()
    except SystemExit as ended:  # in a server's own processes too
        if isinstance(ended.code, int | None):
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # as it is where the process was started without
                    stream.flush()
            os._exit(ended.code or 0)
        raise


if __name__ == "__main__":
    main()
