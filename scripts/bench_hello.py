"""A bare Flask application on the server's own gunicorn worker. scripts/bench compares the server with it.

Each of the three calls of a cycle checks Hawk, reads JSON and answers JSON. Nothing is stored.
"""

from legacy_queue.server.gevent_patching import patch

patch()  # must come before any import of something that holds a lock or a socket

from dataclasses import replace
from typing import Any

from flask import Flask, request

from legacy_queue.__main__ import main
from legacy_queue.adapters.clock import SystemClock
from legacy_queue.config import Settings
from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.hawk import SignedRequest
from legacy_queue.domain.scopes import Roles
from legacy_queue.server import serve
from legacy_queue.wiring import Server, build


def hello(settings: Settings) -> Flask:
    """Return the application. Like a claim, it answers credentials, here those of the caller."""
    [client] = settings.clients
    authenticator = Authenticator({client.client_id: client}, Roles({}))
    credentials = {"clientId": client.client_id, "accessToken": client.access_token}
    clock = SystemClock()
    app = Flask("hello")

    @app.put("/v1/task/<task_id>")
    @app.post("/v1/task/<task_id>/runs/<run_id>/claim")
    @app.post("/v1/task/<task_id>/runs/<run_id>/completed")
    def answer(task_id: str, run_id: str = "") -> dict[str, Any]:
        host, _, port = request.host.partition(":")
        signed = SignedRequest(
            request.method,
            request.path,
            host,
            int(port),
            request.headers["Authorization"],
            request.headers["Content-Type"],
            request.get_data(),
        )
        identity = authenticator.authenticate(signed, clock.now())
        assert identity
        return {"taskId": task_id, "runId": run_id, "body": request.json, "credentials": credentials}

    return app


def build_hello(settings: Settings, *args: Any, **options: Any) -> Server:
    """Return the server that ``build`` makes, but with this application."""
    return replace(build(settings, *args, **options), app=hello(settings))


if __name__ == "__main__":
    serve.build = build_hello  # type: ignore[attr-defined]
    main()
