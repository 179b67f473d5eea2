"""legacy-queue serve: the server, which is gunicorn with gevent workers."""

import gc

import click

from legacy_queue.cli.options import SettingsCommand, pass_given, stop_with_stdin_option, watch_stdin
from legacy_queue.config import GivenSettings


@click.command(
    cls=SettingsCommand,
    uses=("storage", "data_dir", "connection_string", "port", "amqp_url", "control"),
)
@click.option(
    "--azurite-default-ports",
    is_flag=True,
    help="Run Azurite on ports 10000, 10001 and 10002 if they are free, and if it has not run in this data "
    "directory before.",
)
@stop_with_stdin_option
@pass_given
def serve(given: GivenSettings, azurite_default_ports: bool, stop_with_stdin: bool) -> None:
    """Run the queue until SIGTERM or Ctrl-C. The exit code is then 0, even if the server was still starting.

    The server also does the background work: it ends claims and enforces deadlines when they are due,
    finishes what a killed server left undone, and removes what has expired.

    When the server is ready, it prints one line of JSON on standard output. It contains `rootUrl`, `baseUrl`,
    `port`, `pid` and `storage`; with embedded storage `file`, with --tls auto `ca`, and with the development
    client its `credentials`. The log goes to standard error: as text on a terminal, otherwise as lines of
    JSON.
    """
    gc.disable()  # until the server is built: while it imports, a collection finds next to nothing to free
    # Imported here because it takes long. `server` comes first: gevent must patch before any lock is made.
    from legacy_queue.server import serve as server
    from legacy_queue.server.logs import log_to_standard_error

    settings = given.settings()
    if stop_with_stdin:
        watch_stdin()
    log_to_standard_error(settings.log_format, settings.log_level)
    server.serve(settings, has_default_ports=azurite_default_ports)
