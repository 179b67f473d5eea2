"""legacy-queue resolve: the background work that ``serve --no-resolvers`` leaves out, in its own process."""

import json
import os
import signal
import threading
from dataclasses import replace

import click
from flask import Flask
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from legacy_queue.cli.options import (
    SettingsCommand,
    setting_options,
    settings_of,
    stop_with_stdin_option,
    watch_stdin,
)
from legacy_queue.config import Settings
from legacy_queue.config.development import complete
from legacy_queue.http.metrics import monitoring_app
from legacy_queue.local_processes.azurite import find_running
from legacy_queue.server.listener import listen
from legacy_queue.server.logs import log_to_standard_error
from legacy_queue.server.signals import stop_signals
from legacy_queue.wiring import build, check_account, storage_file


@click.command(
    cls=SettingsCommand,
    uses=("storage", "data_dir", "connection_string", "queue_prefix", "amqp_url", "resolver_port"),
)
@stop_with_stdin_option
@setting_options
def resolve(stop_with_stdin: bool, **options: str | None) -> None:
    """Fire timers, resolve dependencies and groups, sweep and expire, until SIGTERM or Ctrl-C.

    Any number of resolvers may run beside any number of servers, on the same storage, with the same settings.
    With --storage embedded or azurite they use the file, or the Azurite, of a server with the same
    --data-dir. When it is ready, it prints one line of JSON on standard output, and serves /ready and
    /metrics over http at --host and --resolver-port. Logs are on standard error:
    lines of JSON, or text at a terminal.
    """
    if stop_with_stdin:
        watch_stdin()
    settings, _ = settings_of({**options, "resolvers": "true"})
    log_to_standard_error(settings.log_format, settings.log_level)
    if settings.storage == "memory":
        raise click.ClickException(
            "memory storage lives in the server's own process, which has to resolve itself: "
            "use --storage embedded, azurite or azure"
        )
    if file := storage_file(settings):
        file.require()
    if settings.storage == "azurite":
        settings = replace(settings, connection_string=find_running(settings.data_dir / "azurite"))
    check_account(settings)
    settings = complete(settings)
    server = build(settings, settings.public_url or "http://127.0.0.1")
    server.wait_for_storage()  # a signal ends the process at once: nothing has started
    signals = stop_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # in the new threads too: this thread waits for them
    monitoring = _listen(settings, monitoring_app(server.services, server.metrics))
    server.background.start()
    threading.Thread(target=monitoring.serve_forever, daemon=True).start()
    line = {"pid": os.getpid(), "port": monitoring.port, "storage": server.storage.account.endpoints}
    click.echo(json.dumps(line))
    signal.sigwait(signals)
    server.background.stop()


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a probe comes every few seconds."""


def _listen(settings: Settings, app: Flask) -> BaseWSGIServer:
    """Raises SettingsError for a host or a port that cannot be used."""
    address = settings.host, settings.resolver_port
    with listen(*address, "--resolver-port") as listener:
        descriptor = listener.fileno()  # of which the server makes a copy
        return make_server(*address, app, True, request_handler=_QuietHandler, fd=descriptor)
