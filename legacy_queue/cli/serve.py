"""legacy-queue serve: gunicorn with gevent workers on one of the storages."""

import gc

import click

from legacy_queue.cli.options import (
    SettingsCommand,
    pass_given,
    stop_with_stdin_option,
    watch_stdin,
)
from legacy_queue.config import Given


@click.command(
    cls=SettingsCommand,
    uses=("storage", "data_dir", "connection_string", "port", "amqp_url", "control"),
)
@click.option(
    "--azurite-default-ports",
    is_flag=True,
    help="Use 10000, 10001, 10002 for Azurite if they are free and the data directory has no ports yet.",
)
@stop_with_stdin_option
@pass_given
def serve(given: Given, azurite_default_ports: bool, stop_with_stdin: bool) -> None:
    """Serve the queue until SIGTERM or Ctrl-C. The exit code is then 0, also while it starts.

    It also ends claims and deadlines when their time comes, goes on with what a killed server left undone,
    and removes what has expired.

    When it is ready, it prints one line of JSON on standard output: `rootUrl`, `baseUrl`, `port`, `pid`,
    `storage`, `file` of the embedded storage, `ca` with --tls auto, and `credentials` while the development
    client is in force. Logs are on standard error: lines of JSON, or text at a terminal.
    """
    gc.disable()  # until the server is built: collections while it imports would find next to nothing
    # here, since they take long; first what has gevent patch before anything is imported that has a lock
    from legacy_queue.server import serve as server
    from legacy_queue.server.logs import log_to_standard_error

    settings = given.settings()
    if stop_with_stdin:
        watch_stdin()
    log_to_standard_error(settings.log_format, settings.log_level)
    server.serve(settings, has_default_ports=azurite_default_ports)
