"""What `legacy-queue resolve` does: the background work that ``serve --no-resolvers`` leaves out."""

import json
import os
import signal
import time
from dataclasses import replace

from legacy_queue.config import Settings, complete
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.local_processes.azurite import find_running
from legacy_queue.server.signals import stop_signals
from legacy_queue.wiring import Server, build, check_account, storage_file

_RETRY_INTERVAL = 0.5  # seconds


def resolve(settings: Settings) -> None:
    """Resolve until a signal. Raises SettingsError, UnusableStorage."""
    if file := storage_file(settings):
        file.require()  # before credentials are made in a folder without it
    settings = complete(settings)
    if settings.storage == "azurite":
        settings = replace(settings, connection_string=find_running(settings.data_dir / "azurite"))
    check_account(settings)
    server = build(settings, settings.public_url or "http://127.0.0.1")
    wait_for(server)  # a signal ends the process at once: nothing has started
    signals = stop_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # in the new threads too: this thread waits for them
    server.background.start()
    print(json.dumps({"pid": os.getpid(), "storage": server.storage.account.endpoints}), flush=True)  # noqa: T201
    signal.sigwait(signals)
    server.background.stop()


def wait_for(server: Server) -> None:
    """Wait until its storage answers. A reset may replace the storage while this waits."""
    while True:
        try:
            return server.storage.account.check()
        except ServiceUnavailable:
            time.sleep(_RETRY_INTERVAL)
