"""Counts the function calls of a task: ``python -m gevent.monkey --module tests.http.function_calls``.

No machine changes their number: storage is memory, and no thread does the work of the background. As in a
server, gevent patches: what waits for a lock is Python, too.
"""

import json
import pstats
from cProfile import Profile
from datetime import UTC, datetime
from typing import Any

from werkzeug.test import EnvironBuilder

from legacy_queue.config import Settings
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.server.logs import log_to_standard_error
from legacy_queue.wiring import build

from .calls import ROOT, ROOT_URL, SECRETS, WORKER, Credentials, hawk, task_body

TASKS = 50
_SHOWN = 60


class CountedServer:
    """A server without threads; what it does is counted."""

    def __init__(self) -> None:
        root = Client(ROOT.client_id, ROOT.access_token, ("*",))
        self._server = build(Settings(storage="memory", signing_secrets=SECRETS, clients=(root,)), ROOT_URL)
        self._server.wait_for_storage()
        self.counted = Profile()

    def run(self, tasks: int) -> None:
        """Create, claim and complete so many tasks, one after the other."""
        services = self._server.services
        for _ in range(tasks):
            task = f"/v1/task/{slugid()}"
            self._call("PUT", task, task_body(datetime.now(UTC)))
            held = self._call("POST", f"{task}/runs/0/claim", WORKER)["credentials"]
            credentials = Credentials(held["clientId"], held["accessToken"], held["certificate"])
            self._call("POST", f"{task}/runs/0/completed", {}, credentials)
            with self.counted:
                assert services.resolver.handle_all() == 1
        with self.counted:  # once a second or so
            services.timers.tick()
            services.workers.flush()

    def _call(self, method: str, target: str, body: Any, credentials: Credentials = ROOT) -> Any:
        signed = hawk(credentials, method, ROOT_URL + target, datetime.now(UTC))
        headers = [("Authorization", signed)]
        raw = {"RAW_URI": target}
        request = EnvironBuilder(
            target, ROOT_URL, method=method, json=body, headers=headers, environ_overrides=raw
        )
        environ = request.get_environ()
        with self.counted:
            answer: Any = self._server.app(environ, lambda *_: None)
            content = b"".join(answer)
            answer.close()
        return json.loads(content)


if __name__ == "__main__":
    log_to_standard_error("json")
    server = CountedServer()
    server.run(20)  # to fill the caches
    server.counted = Profile()
    server.run(TASKS)
    stats: Any = pstats.Stats(server.counted)
    stats.strip_dirs().sort_stats("ncalls").print_stats(_SHOWN)
    print(stats.total_calls / TASKS)  # noqa: T201
