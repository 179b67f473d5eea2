"""legacy-queue resolve: the background work that ``serve --no-resolvers`` leaves out, in its own process."""

import click

from legacy_queue.cli.options import setting_options, settings_of, stop_with_stdin_option
from legacy_queue.server import resolve as server
from legacy_queue.server.logs import log_to_standard_error


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
    server.resolve(settings)
