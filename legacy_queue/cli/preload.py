"""What is otherwise imported or made when it is first needed, ahead of the first request.

An import in a request takes long, and fails where the process has no file descriptor left.
"""

from contextlib import suppress
from importlib import import_module

from legacy_queue.http.bodies import build_validators

_LAZY = (  # what Python and the libraries import within functions, or as attributes of a package
    "_strptime",
    "azure.core.rest._requests_basic",
    "concurrent.futures.thread",
    "email.generator",
    "encodings.idna",
    "encodings.utf_8_sig",
    "gevent._threading",
    "gevent.fileobject",
    "gevent.resolver._addresses",
    "gevent.util",
    "idna",
    "netrc",
)


def preload() -> None:
    """Import and make it now. Safe to repeat."""
    for name in _LAZY:
        with suppress(ImportError):  # of other versions
            import_module(name)
    build_validators()
