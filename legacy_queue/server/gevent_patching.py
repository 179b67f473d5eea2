"""gevent's patches of the standard library, for a server's process."""

from importlib import metadata
from typing import Any

from gevent import monkey


def patch() -> None:
    """Patch before anything else is imported that holds a lock or a socket.

    At each of its 25 steps gevent asks for entry points, and Python reads those of every installed package
    anew: a fifth of a server's start among 190 packages. Here they are read once.
    """
    read_all: Any = metadata.entry_points
    metadata.entry_points = read_all().select
    try:
        monkey.patch_all()
    finally:
        metadata.entry_points = read_all
