"""legacy-queue resolve: what ``serve --no-resolvers`` leaves undone, in a process of its own."""

import json
import os
import signal
from contextlib import suppress
from dataclasses import replace

import click

from legacy_queue.adapters.azurite import Azurite, AzuriteUnavailable
from legacy_queue.cli.logs import log_to_standard_error
from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.config import SettingsError, complete
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Storage
from legacy_queue.wiring import Server, build

_LOOK_AGAIN = 0.5  # seconds
_ENDS = (signal.SIGTERM, signal.SIGINT)


@click.command()
@setting_options
def resolve(**options: str | None) -> None:
    """Fire timers, resolve dependencies and groups, sweep and expire, until SIGTERM or Ctrl-C.

    Any number of these may run beside any number of servers, on the same storage, with the same settings;
    with --storage azurite it is the Azurite that a server has started in the same --data-dir. When it has
    begun, one line of JSON on standard output says so. Logs are on standard error: lines of JSON, or text
    at a terminal.
    """
    settings, _ = settings_of({**options, "resolvers": "true"}, os.environ)
    log_to_standard_error(settings.log_format, settings.log_level)
    if settings.storage == "memory":
        raise click.ClickException(
            "memory storage lives in the server's own process, which has to resolve itself: "
            "use --storage azurite or azure"
        )
    try:
        settings = complete(settings)
        if settings.storage == "azurite":
            azurite = Azurite(settings.data_dir / "azurite", settings.azurite_dir).found()
            settings = replace(settings, connection_string=azurite.connection_string)
        server = build(settings, settings.public_url or "http://127.0.0.1")
    except (SettingsError, AzuriteUnavailable) as error:
        raise click.ClickException(str(error)) from None
    _run_until_told(server)


def _run_until_told(server: Server) -> None:
    # blocked in the threads to come too: a signal that comes as Event.wait begins would not end it
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    while not _is_ready(server.storage):
        if signal.sigtimedwait(_ENDS, _LOOK_AGAIN):
            return
    server.background.start()
    print(json.dumps({"pid": os.getpid(), "storage": server.storage.endpoints}), flush=True)  # noqa: T201
    signal.sigwait(_ENDS)
    server.background.stop()


def _is_ready(storage: Storage) -> bool:
    with suppress(ServiceUnavailable):
        storage.check()
        return True
    return False
