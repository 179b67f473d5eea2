"""What `legacy-queue resolve` does: the background work that ``serve --no-resolvers`` leaves out."""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

from legacy_queue.config import Settings, SettingsError, complete
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.local_processes.azurite import AzuriteUnavailable, find_running
from legacy_queue.server.signals import ENDS, StopHandler, StopSignal
from legacy_queue.wiring import Server, build, check_account, require_file

_RETRY_INTERVAL = 0.5  # seconds


def resolve(settings: Settings) -> None:
    """Resolve until a signal. Raises SettingsError."""
    try:
        require_file(settings)  # before credentials are made in a folder without it
        settings = complete(settings)
        if settings.storage == "azurite":
            settings = replace(settings, connection_string=find_running(settings.data_dir / "azurite"))
        check_account(settings)
        server = build(settings, settings.public_url or "http://127.0.0.1")
    except AzuriteUnavailable as error:
        raise SettingsError(str(error)) from None
    wait_for(server)  # a signal ends the process at once: nothing has started
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # in the new threads: only this thread gets signals
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
