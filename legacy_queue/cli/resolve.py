"""legacy-queue resolve: what ``serve --no-resolvers`` leaves undone, in a process of its own."""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

import click

from legacy_queue.adapters.azurite import Azurite, AzuriteUnavailable
from legacy_queue.cli.logs import log_to_standard_error
from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.cli.signals import STOP_WITH_STDIN, Signals, stop_with_stdin
from legacy_queue.config import SettingsError, complete
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.stores import Storage
from legacy_queue.wiring import Server, build

_LOOK_AGAIN = 0.5  # seconds


@click.command()
@click.option("--stop-with-stdin", "stops_with_stdin", is_flag=True, help=STOP_WITH_STDIN)
@setting_options
def resolve(stops_with_stdin: bool, **options: str | None) -> None:
    """Fire timers, resolve dependencies and groups, sweep and expire, until SIGTERM or Ctrl-C.

    Any number of these may run beside any number of servers, on the same storage, with the same settings;
    with --storage azurite it is the Azurite that a server has started in the same --data-dir. When it has
    begun, one line of JSON on standard output says so. Logs are on standard error: lines of JSON, or text
    at a terminal.
    """
    if stops_with_stdin and sys.stdin is None:
        raise click.UsageError("--stop-with-stdin needs a standard input, and it is closed")
    if stops_with_stdin:
        threading.Thread(target=stop_with_stdin, daemon=True).start()
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
    while not _is_ready(server.storage):  # a signal ends the process at once: nothing has begun
        time.sleep(_LOOK_AGAIN)
    signals = Signals()
    server.background.start()
    print(json.dumps({"pid": os.getpid(), "storage": server.storage.account.endpoints}), flush=True)  # noqa: T201
    signals.wait()
    server.background.stop()


def _is_ready(storage: Storage) -> bool:
    with suppress(ServiceUnavailable):
        storage.account.check()
        return True
    return False
