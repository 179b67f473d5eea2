"""legacy-queue serve: gunicorn with gevent workers and, by default, an Azurite of its own."""

from gevent import monkey

monkey.patch_all()  # before anything else is imported that holds a lock or a socket

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import click
import gevent
import structlog
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from legacy_queue.adapters.azurite import Azurite, AzuriteUnavailable
from legacy_queue.cli.logs import log_to_standard_error
from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.config import Settings, SettingsError, complete
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.wiring import Server, build

log = structlog.get_logger()

_DRAIN = 30  # seconds that requests under way have left after SIGTERM


@click.command()
@setting_options
def serve(**options: str | None) -> None:
    """Serve the queue until SIGTERM or Ctrl-C.

    When it is ready, one line of JSON on standard output says where, and with which credentials where they
    are those of the development client. Logs are lines of JSON on standard error.
    """
    log_to_standard_error()
    settings, _ = settings_of(options, os.environ)
    with ExitStack() as stack:
        try:
            settings = complete(settings)
            listener = _listen(settings)
            azurite = None
            if settings.storage == "azurite":
                azurite = stack.enter_context(Azurite(settings.data_dir / "azurite", settings.azurite_dir))
                settings = replace(settings, connection_string=azurite.connection_string)
            root_url = settings.public_url or _url_of(listener)
            # it ends by SystemExit, in its own processes too: Azurite is stopped last, and only by its parent
            _Arbiter(_Application(settings, root_url, listener.detach()), azurite).run()
        except (SettingsError, AzuriteUnavailable) as error:
            raise click.ClickException(str(error)) from None


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; "
            "choose another with --port, 0 lets the system choose"
        ) from None


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Application(BaseApplication):
    def __init__(self, settings: Settings, root_url: str, listener: int) -> None:
        self._settings, self._root_url, self._listener = settings, root_url, listener
        self._server: Server | None = None
        super().__init__()

    def load_config(self) -> None:
        values = {
            "bind": f"fd://{self._listener}",
            "worker_class": "gevent",
            "workers": self._settings.workers,
            "worker_connections": 4000,
            "keepalive": 120,  # legacy clients keep their connections, and so do proxies
            "timeout": 60,
            "graceful_timeout": _DRAIN,
            "limit_request_line": 8190,
            "limit_request_field_size": 65536,  # a certificate in a Hawk header holds every scope of its task
            "forwarded_allow_ips": "*" if self._settings.trusted_proxy else "",
            "loglevel": "warning",
            "post_worker_init": self._announce,
            "control_socket_disable": True,
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        self._server = build(self._settings, self._root_url)
        return self._server.app

    def _announce(self, worker: Any) -> None:
        """The first process that gunicorn starts says that the server is ready, once it is."""
        server = self._server
        assert server  # noqa: S101 - loaded before

        def announce() -> None:
            while True:
                try:
                    server.storage.check()
                    break
                except ServiceUnavailable:
                    time.sleep(0.5)
            if worker.age == 1:
                print(json.dumps(self._ready_line(worker.ppid)), flush=True)  # noqa: T201

        gevent.spawn(announce)

    def _ready_line(self, pid: int) -> dict[str, Any]:
        settings, server = self._settings, self._server
        assert server  # noqa: S101
        line: dict[str, Any] = {
            "rootUrl": self._root_url,
            "baseUrl": f"{self._root_url}/v1",
            "pid": pid,
            "storage": server.storage.endpoints,
        }
        if settings.development_client:
            client = next(one for one in settings.clients if one.client_id == settings.development_client)
            line["credentials"] = {"clientId": client.client_id, "accessToken": client.access_token}
        return line


class _Arbiter(Arbiter):
    """gunicorn's own, which also looks after Azurite once a second."""

    def __init__(self, app: BaseApplication, azurite: Azurite | None) -> None:
        self._azurite = azurite
        super().__init__(app)

    def murder_workers(self) -> None:
        if self._azurite and not self._azurite.alive():
            log.error("azurite-died")
            try:
                self._azurite.restart()
                log.warning("azurite-restarted")
            except AzuriteUnavailable as error:
                log.error("azurite-not-restarted", why=str(error))
        super().murder_workers()
