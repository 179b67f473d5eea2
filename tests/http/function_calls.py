"""Counts the function calls of one task. Run ``python -m gevent.monkey --module tests.http.function_calls``.

The number is the same on every machine, because storage is in memory and no thread works in the background.
gevent patches the modules as in a server, so waiting for a lock is Python code, too.
"""

import pstats
from collections.abc import Iterable
from cProfile import Profile
from typing import Any

from werkzeug.test import Client

from legacy_queue.adapters.clock import SystemClock
from legacy_queue.server.logs import log_to_standard_error

from .calls import Queue, claimed, succeeded

TASKS = 50
_SHOWN = 60


class CountedQueue(Queue):
    """A server without threads. It counts the function calls of its requests."""

    def __init__(self) -> None:
        clock: Any = SystemClock()
        super().__init__(clock=clock)
        self.server.wait_for_storage()
        self.counted = Profile()
        self.http = Client(self._counting)

    def _counting(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        with self.counted:
            answer: Any = self.server.app(environ, start_response)
            content = b"".join(answer)
            answer.close()
        return [content]

    def run(self, tasks: int) -> None:
        """Create, claim and complete this many tasks, one after the other."""
        services = self.server.services
        for _ in range(tasks):
            task_id = self.create()
            credentials = claimed(self.claim(task_id))
            succeeded(self.call("reportCompleted", {}, credentials, taskId=task_id, runId=0))
            with self.counted:
                assert services.resolver.handle_all() == 1
        with self.counted:  # in a server this happens about once a second
            services.tick()
            services.workers.flush()


if __name__ == "__main__":
    log_to_standard_error("json")
    queue = CountedQueue()
    queue.run(20)  # to fill the caches
    queue.counted = Profile()
    queue.run(TASKS)
    stats: Any = pstats.Stats(queue.counted)
    stats.strip_dirs().sort_stats("ncalls").print_stats(_SHOWN)
    print(stats.total_calls / TASKS)  # noqa: T201
