"""The servers of a test run: one for each set of settings, in each process of pytest."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from legacy_queue.testing.legacy_queue import LegacyQueue
from legacy_queue.testing.server_process import ServerFailed

__tracebackhide__ = True  # a traceback ends at the test's call


class Servers(ExitStack):
    """The servers, started when they are first asked for. The end of the context stops them."""

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[str, LegacyQueue] = {}

    def running(self, settings: Mapping[str, Any]) -> LegacyQueue:
        """The server with these settings, as the tests have left it. Raises ServerFailed."""
        name = repr(sorted(settings.items()))
        if name not in self._running:
            self._running[name] = self.enter_context(LegacyQueue(**settings))
        return self._running[name]

    def clean(self, settings: Mapping[str, Any]) -> LegacyQueue:
        """The server with these settings, empty. Restarts it if it has ended. Raises ServerFailed."""
        queue = self.running(settings)
        try:
            queue.reset()
        except ServerFailed as failed:
            queue.__exit__(type(failed), failed, None)
            queue.__enter__()  # the same object: legacy_queue_server may have been given it
        return queue
