"""legacy-queue test: run a command, such as a test suite, with a queue of its own."""

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from legacy_queue.cli.options import SettingsCommand, pass_given
from legacy_queue.cli.queue_options import failing_with_a_sentence
from legacy_queue.config import GivenSettings
from legacy_queue.credentials import Credentials
from legacy_queue.queue_client import QueueClient
from legacy_queue.server.signals import handle_stop
from legacy_queue.testing import LegacyQueue, ServerFailed
from legacy_queue.testing.summary import fault_line

_CONNECTION_STRING = "LEGACY_QUEUE_CONNECTION_STRING"
_PASSED_ON = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_SI_KERNEL = 0x80  # si_code of a signal that the terminal has sent to all its processes. Source: sigaction(2)
_SIGNALLED = 128  # plus the number of a signal: the exit code, as in shells


@click.command(
    cls=SettingsCommand,
    reads_variables=False,
    uses=("storage", "claim_timeout", "worker_types", "log_level"),
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
@pass_given
def test(given: GivenSettings, words: tuple[str, ...]) -> None:
    """Start a new, empty queue, run COMMAND with it, and exit with the exit code of COMMAND.

    The queue listens on a free port and keeps its data in memory, unless --storage says otherwise. It ends
    when COMMAND ends. COMMAND finds it by the variables TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID and
    TASKCLUSTER_ACCESS_TOKEN. Clients that need a legacy base URL find it in LEGACY_QUEUE_BASE_URL. The other
    commands of legacy-queue find the queue too.

    Signals are passed on to COMMAND. If a signal ends it, the exit code is 128 plus the number of the signal.
    The exit code is 127 if COMMAND does not exist, 126 if it cannot be run, and 1 if the server does not
    start.

    If COMMAND fails, standard error shows the last requests, the tasks, their messages, and the
    warnings of the server.

    Every option of `serve` works here too. LEGACY_QUEUE_ variables are ignored, so that a test run is the
    same everywhere. The exception is LEGACY_QUEUE_CONNECTION_STRING with --storage azure: the queue then
    uses, and does not empty, what the account has under --queue-prefix.
    """
    settings = _settings(given)
    if not shutil.which(words[0]):
        if os.path.dirname(words[0]) and os.path.exists(words[0]):
            raise _NotRun(126, f"{words[0]!r} cannot be run: it is a directory, or it is not executable")
        raise _NotRun(127, f"there is no command {words[0]!r}")
    # until the command runs, a signal ends this process in order, and the exit code is that of a shell
    handle_stop(lambda number, _frame: sys.exit(_SIGNALLED + number))
    try:
        with LegacyQueue(**settings) as queue:
            for other in ("TASKCLUSTER_CERTIFICATE", "TASKCLUSTER_PROXY_URL", _CONNECTION_STRING):
                os.environ.pop(other, None)
            os.environ.update(queue.env)  # for the command and for _name_unused_faults
            os.environ.update(LEGACY_QUEUE_ROOT_URL=queue.root_url, LEGACY_QUEUE_BASE_URL=queue.base_url)
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON | {signal.SIGCHLD})
            status = _run(words, blocked)
            if status:
                ended = f"{words[0]} ended with exit code {status}"
                click.echo(f"\n{ended}. This is what the queue saw:\n\n{queue.summary()}", err=True)
            elif settings["control"]:
                _name_unused_faults(queue)
    except ServerFailed as failed:
        raise click.ClickException(str(failed)) from None
    raise SystemExit(status)


class _NotRun(SystemExit):
    """Prints the sentence, and exits with the exit code that a shell would use."""

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(exit_code)
        click.echo(f"Error: {sentence}", err=True)


def _settings(given: GivenSettings) -> dict[str, Any]:
    """The arguments of LegacyQueue."""
    names_account = {"connection_string", "azure_queue_url"} & given.texts.keys()
    connection = os.environ.get(_CONNECTION_STRING)
    if given.texts.get("storage") == "azure" and connection and not names_account:
        # not as an option of the server: every user can read a command line
        given.set("connection_string", connection)
    given.turn_on_control()
    settings = given.settings()
    own: dict[str, Any] = {"control": settings.control}
    own["storage"] = settings.storage if "storage" in given.sources else "memory"
    if settings.clients:  # LegacyQueue adds the client of the command
        own["clients"] = {
            client.client_id: {"accessToken": client.access_token, "scopes": client.scopes}
            for client in settings.clients
        }
    return given.texts | own


def _name_unused_faults(queue: LegacyQueue) -> None:
    """Warn about faults that never fired. The exit code stays that of the command, whatever happens here."""
    called = QueueClient(queue.base_url, Credentials.from_wire(queue.credentials))
    try:
        with failing_with_a_sentence():
            faults = called.call("GET", "/control/v1/faults", expected="faults")["faults"]
        for fault in faults:
            if not fault["fired"]:
                click.echo(f"Warning: a fault never fired: {fault_line(fault)}", err=True)
    except click.ClickException as error:
        error.show()


def _run(words: Sequence[str], blocked: set[signal.Signals | int]) -> int:
    """Run the command with ``blocked`` as its signal mask, and return its exit code, as a shell would.

    The signals in _PASSED_ON must be blocked in this process: they are read here and passed on. Raises
    _NotRun.
    """
    try:
        pid = os.posix_spawnp(
            words[0], list(words), os.environ, setsigmask=blocked, setsigdef=_IGNORED_BY_PYTHON
        )
    except OSError as error:
        raise _NotRun(126, f"{words[0]!r} cannot be run: {error.strerror}") from None
    while True:
        got = signal.sigwaitinfo(_PASSED_ON | {signal.SIGCHLD})
        if got.si_signo != signal.SIGCHLD:
            if got.si_code != _SI_KERNEL:
                os.kill(pid, got.si_signo)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _SIGNALLED - code
