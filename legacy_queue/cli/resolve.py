"""legacy-queue resolve: the background work that ``serve --no-resolvers`` leaves out, in its own process."""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

import click

from legacy_queue.adapters.azurite import AzuriteUnavailable, find_running
from legacy_queue.adapters.embedded import StorageFile, UnusableFile
from legacy_queue.cli.logs import log_to_standard_error
from legacy_queue.cli.options import setting_options, settings_of, stop_with_stdin_option
from legacy_queue.cli.signals import ENDS, StopHandler, StopSignal
from legacy_queue.config import SettingsError, complete
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.wiring import Server, build, check_account

_RETRY_INTERVAL = 0.5  # seconds


@click.command()
@stop_with_stdin_option
@setting_options
def resolve(**options: str | None) -> None:
    """Fire timers, resolve dependencies and groups, sweep and expire, until SIGTERM or Ctrl-C.

    Any number of resolvers may run beside any number of servers, on the same storage, with the same settings.
    With --storage embedded or azurite they use the file, or the Azurite, of a server with the same
    --data-dir. When it is ready, it prints one line of JSON on standard output. Logs are on standard error:
    lines of JSON, or text at a terminal.
    """
    settings, _ = settings_of({**options, "resolvers": "true"})
    log_to_standard_error(settings.log_format, settings.log_level)
    if settings.storage == "memory":
        raise click.ClickException(
            "memory storage lives in the server's own process, which has to resolve itself: "
            "use --storage embedded, azurite or azure"
        )
    try:
        if settings.storage == "embedded":  # before credentials are made in a folder without it
            StorageFile(settings.data_dir).require()
        settings = complete(settings)
        if settings.storage == "azurite":
            settings = replace(settings, connection_string=find_running(settings.data_dir / "azurite"))
        check_account(settings)
        server = build(settings, settings.public_url or "http://127.0.0.1")
    except (SettingsError, AzuriteUnavailable, UnusableFile) as error:
        raise click.ClickException(str(error)) from None
    wait_for(server)  # a signal ends the process at once: nothing has started
    signal.pthread_sigmask(
        signal.SIG_BLOCK, ENDS
    )  # the new threads inherit this: only this thread gets signals
    server.background.start()
    print(json.dumps({"pid": os.getpid(), "storage": server.storage.account.endpoints}), flush=True)  # noqa: T201
    with suppress(StopSignal):
        stop_handler = StopHandler()
        while not stop_handler.is_stopping:
            signal.pause()
    server.background.stop()


def wait_for(server: Server) -> None:
    """Wait until its storage answers. A reset may replace the storage while this waits."""
    while True:
        try:
            return server.storage.account.check()
        except ServiceUnavailable:
            time.sleep(_RETRY_INTERVAL)
