"""legacy-queue up: a queue for a person at a terminal, and a demonstration of what happens to a task."""

import json
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from select import select
from subprocess import PIPE, Popen
from time import monotonic
from typing import Any

import click

from legacy_queue.cli.create_task import create, definition_of
from legacy_queue.cli.options import SettingsCommand, pass_given
from legacy_queue.cli.queue_options import failing_with_a_sentence
from legacy_queue.config import GivenSettings, Settings
from legacy_queue.config.settings import wire_name
from legacy_queue.credentials import Credentials
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import parse_time
from legacy_queue.local_processes.azurite import CONNECTION_STRING
from legacy_queue.private_folder import make_private
from legacy_queue.queue_client import QueueClient
from legacy_queue.server.signals import interrupt_on_signal
from legacy_queue.testing.server_process import trust_variables
from legacy_queue.worker import SampleWorker, WorkerSettings
from legacy_queue.worker.task_run import LOG

_POOL = "my-provisioner/my-worker"
_DEMO_CLAIM = "6s"  # short, so that the demonstration shows a reclaim
_DEMO_COMMAND = ["sh", "-c", "echo 'hello from the task'; sleep 5"]
_LINK_LIFE = timedelta(minutes=60)
_PROGRESS_INTERVAL = 2  # seconds
_REPORT_TIMEOUT = 1  # seconds for the sample worker to report its task at the end


@click.command(
    cls=SettingsCommand,
    uses=("demo", "azurite", "storage", "data_dir", "port", "claim_timeout", "amqp_url"),
)
@click.option(
    "--demo", is_flag=True, help="Create a task, run the sample worker on it, print each step, and end."
)
@click.option("--azurite", is_flag=True, help="Keep the data in an Azurite: the same as --storage azurite.")
@pass_given
def up(given: GivenSettings, demo: bool, azurite: bool) -> None:
    """Run the queue and print commands to try. Ctrl-C stops the queue and its storage. Requests are logged
    only with --log-level info.

    Every option of `serve` works here too. Two defaults differ: --log-level is warning, and --control is on
    unless another setting excludes it.

    If you interrupt a demonstration, the exit code is 130.
    """
    if azurite:
        given.set("storage", "azurite")
    if not demo:
        given.turn_on_control()
    if "log_level" not in given.sources:
        given.set("log_level", "warning")
    settings = given.settings()  # a mistake is an error at once
    server_options = given.texts
    if demo:  # next to a queue that is up already
        own = {"claim_timeout": _DEMO_CLAIM, "port": "0", "data_dir": str(settings.data_dir / "demo")}
        server_options = {**own, **server_options}
    command = [sys.executable, "-m", "legacy_queue", "serve", "--stop-with-stdin"]
    command += [] if demo else ["--azurite-default-ports"]
    command += [f"--{wire_name(name)}={value}" for name, value in server_options.items()]
    interrupt_on_signal()
    if not demo:  # the other commands find the server there, even if its storage is memory
        make_private(settings.data_dir)
    try:
        with _server(command) as (server, ready):
            os.environ.update(trust_variables(ready))
            if demo:
                _demonstrate(ready)
            else:
                click.echo("\n".join(_what_to_try(ready, settings)))
                server.wait()
                raise click.ClickException("the server ended by itself; its log above says why")
    except KeyboardInterrupt:
        if demo:
            raise SystemExit(130) from None
    kept = "memory storage keeps nothing" if settings.storage == "memory" else "everything is kept"
    click.echo(f"Stopped; {kept}.", err=True)


@contextmanager
def _server(command: list[str]) -> Iterator[tuple[Popen[str], Mapping[str, Any]]]:
    """A running server and its ready line. The server ends in order when this process ends or is killed."""
    # In a session of its own the server does not receive Ctrl-C: this process does, and ends it in order. If
    # Ctrl-C comes before Popen returns, the server ends because its standard input does.
    server = Popen(  # noqa: S603 - this very program
        command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True
    )
    try:
        assert server.stdout  # noqa: S101
        begun = monotonic()
        while not select([server.stdout], [], [], _PROGRESS_INTERVAL)[0]:
            click.echo(f"Starting the queue ... {monotonic() - begun:.0f} s", err=True)
        line = server.stdout.readline()
        if not line:  # the error is on standard error
            raise SystemExit(server.wait())
        yield server, json.loads(line)
    except KeyboardInterrupt:
        click.echo("\nStopping ...", err=True)
        raise
    finally:
        server.terminate()
        server.wait()


def _what_to_try(ready: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    """At most 15 lines: the link to the page, then the commands that a new user needs."""
    program = _program()
    if "credentials" in ready:
        queue = QueueClient(ready["baseUrl"], Credentials.from_wire(ready["credentials"]))
        minutes = _LINK_LIFE // timedelta(minutes=1)
        yield f"The queue is up. This link opens its page for the next {minutes} minutes:"
        yield f"  {queue.page_link(_LINK_LIFE)}"
    else:
        yield "The queue is up. As one of your clients, print a link to its page:"
        yield f"  {program} open"
    yield ""
    if settings.data_dir.resolve() == Settings().data_dir.resolve():
        yield "In another terminal in this directory, create a task and run it:"
    else:
        yield "In another terminal, name the data directory, then create a task and run it:"
        yield f"  export LEGACY_QUEUE_DATA_DIR={shlex.quote(str(settings.data_dir.resolve()))}"
    yield f"  {program} create-task {_POOL} -- echo hello"
    yield f"  {program} worker {_POOL} --max-tasks 1"
    if settings.control:
        yield "Look inside, or make something fail:"
        yield f"  {program} requests"
        yield f"  {program} fault add claimTask --status 503 --times 1"
    yield f"Connect your own worker or client (legacy base URL: {ready['baseUrl']}):"
    yield f'  eval "$({program} env)"'
    if settings.storage == "azurite":
        file = settings.data_dir / "azurite" / CONNECTION_STRING
        yield f"Azure's tools find Azurite by the connection string in {file}"
    yield "\nCtrl-C stops the queue and its storage."


def _program() -> str:
    """The words with which another terminal starts this program: its name, or else its path."""
    path = Path(sys.argv[0])
    if path.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m legacy_queue"
    name = "legacy-queue"
    found = shutil.which(name)
    # uv and scripts/up put the program on the PATH of this process alone
    if found and "UV" not in os.environ and Path(found).resolve() == path.resolve():
        return name
    relative = os.path.relpath(path)
    return shlex.quote(os.path.abspath(relative) if relative.startswith("..") else relative)


@failing_with_a_sentence()
def _demonstrate(ready: Mapping[str, Any]) -> None:
    if "credentials" not in ready:
        raise click.ClickException("--demo needs the development client: leave out the setting clients")
    queue = QueueClient(ready["baseUrl"], Credentials.from_wire(ready["credentials"]))
    task_id = slugid()
    begun = monotonic()

    def show(who: str, what: str) -> None:
        """Print a step of the draft's sequence chart, with the seconds since the start."""
        click.echo(f"{monotonic() - begun:5.2f} s  {who:<20} {what}")

    def on_step(step: str, **fields: Any) -> None:
        if "taken_until" in fields:
            fields["taken_until"] = parse_time(fields["taken_until"])
        show(*_charted(step, fields))
        if step == "claim":  # the queue hides the message before it answers
            held = f"message for run {fields['run_id'] + 1} held, invisible until"
            show("Queue -> AzureQueue", f"{held} {fields['taken_until']:%H:%M:%SZ}")

    pool = f"demo-provisioner/demo-{secrets.token_hex(4)}"  # new: an interrupted demo may have left a task
    definition = definition_of(pool, _DEMO_COMMAND)
    create(queue, task_id, definition, timedelta(hours=1))
    show("Scheduler -> Queue", f"createTask {task_id}")
    settings = WorkerSettings(
        base_url=queue.base_url,
        credentials=queue.credentials,
        pool=pool,
        worker_group="demo",
        worker_id=f"demo-{secrets.token_hex(4)}",
        max_tasks=1,
    )
    worker = SampleWorker(settings, on_step=on_step)
    ended = ThreadPoolExecutor(1).submit(worker.run)
    try:
        ended.result()
    except KeyboardInterrupt:
        worker.stop()
        wait([ended], _REPORT_TIMEOUT)
        raise
    status = queue.call("GET", f"{queue.path}/task/{task_id}/status")["status"]
    show("Queue", f"task {task_id} is {status['state']}, run {len(status['runs']) - 1}")
    if status["state"] != "completed":
        raise click.ClickException(f"the task is {status['state']}: expected completed")
    log = b"".join(queue.download(f"{queue.path}/task/{task_id}/artifacts/{LOG}")).decode()
    show("Reader -> Queue", f"getLatestArtifact: {log.strip()!r}")


# the times have no date, so that each line fits into 80 columns
_CHART = {
    "poll-urls": ("Worker -> Queue", "pollTaskUrls: {queues} signed URLs, good until {expires:%H:%M:%SZ}"),
    "poll": ("Worker -> AzureQueue", "get signedPollUrls[{index}]: {messages} message"),
    "claim": ("Worker -> Queue", "claimTask run {run_id} with messageId, receipt, signature"),
    "run": ("Worker", "executing run {run_id} ..."),
    "reclaim": ("Worker -> Queue", "reclaimTask: taken until {taken_until:%H:%M:%SZ}"),
    "artifact": ("Worker -> Queue", "createArtifact {name}"),
    "report": ("Worker -> Queue", "report {result}"),
}


def _charted(step: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    """The two columns of this step in the chart: the actors, and the action."""
    if step not in _CHART:
        return "Worker", f"{step} {dict(fields)}"
    who, what = _CHART[step]
    return who, what.format(**fields, index=fields.get("queue", 0) - 1)
