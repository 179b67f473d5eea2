"""legacy-queue up: the queue for a person at a terminal, and a demonstration of a task's life."""

import json
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from select import select
from subprocess import PIPE, Popen
from textwrap import indent
from time import monotonic
from typing import Any

import click

from legacy_queue.cli.config import exports, named_queues, variables_of
from legacy_queue.cli.create_task import create, definition_of
from legacy_queue.cli.options import SettingsCommand, pass_given
from legacy_queue.cli.queue_options import failing_with_a_sentence
from legacy_queue.config import Given, Settings
from legacy_queue.config.settings import wire_name
from legacy_queue.credentials import Credentials
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
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
    uses=("demo", "storage", "data_dir", "port", "claim_timeout", "amqp_url"),
)
@click.option("--demo", is_flag=True, help="Create a task, run the sample worker on it, show each step, end.")
@click.option("--azurite", is_flag=True, help="As --storage azurite.")
@pass_given
def up(given: Given, demo: bool, azurite: bool) -> None:
    """Serve the queue and print commands to try. Ctrl-C stops the queue and its storage, and nothing is lost.

    A demonstration that is interrupted ends with exit code 130.

    Takes the options of serve. --control is set unless another setting excludes it.
    """
    if azurite:
        given.set("storage", "azurite")
    if not demo:
        given.turn_on_control()
    settings = given.settings()  # a mistake is an error at once
    server_options = given.texts
    if demo:  # beside a queue that is up already
        own = {"claim_timeout": _DEMO_CLAIM, "port": "0", "data_dir": str(settings.data_dir / "demo")}
        # shows the steps, not the requests
        server_options = {**own, "log_level": "warning", **server_options}
    command = [sys.executable, "-m", "legacy_queue", "serve", "--stop-with-stdin"]
    command += [] if demo else ["--azurite-default-ports"]
    command += [f"--{wire_name(name)}={value}" for name, value in server_options.items()]
    interrupt_on_signal()
    if not demo:  # the other commands find the server there, also one with memory storage
        make_private(settings.data_dir)
    try:
        with _server(command) as (server, ready):
            os.environ.update(trust_variables(ready))
            exported = variables_of(ready)
            if "data_dir" in given.sources:
                exported["LEGACY_QUEUE_DATA_DIR"] = str(settings.data_dir.resolve())
            if demo:
                _demonstrate(ready)
            else:
                _say_what_to_try(ready, exported, has_broker=settings.amqp_url is not None)
                if settings.control:
                    _say_how_to_test(settings)
                _say_where_storage_is(settings)
                click.echo("\nCtrl-C stops the queue and its storage.")
                _say_where_the_page_is(ready)
                server.wait()
                raise click.ClickException("the server ended by itself; its log above says why")
    except KeyboardInterrupt:
        if demo:
            raise SystemExit(130) from None
    kept = "nothing is kept of memory storage" if settings.storage == "memory" else "everything is kept"
    click.echo(f"Stopped; {kept}.", err=True)


@contextmanager
def _server(command: list[str]) -> Iterator[tuple[Popen[str], Mapping[str, Any]]]:
    """A server and its ready line. It ends in order when this process ends, also after a kill."""
    # A new session: Ctrl-C reaches this process alone, which ends the server in order. If it comes while this
    # starts the server, that ends by the end of its input.
    server = Popen(  # noqa: S603 - this very program
        command, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True
    )
    try:
        assert server.stdout  # noqa: S101
        click.echo("Starting the queue ...", err=True)
        begun = monotonic()
        while not select([server.stdout], [], [], _PROGRESS_INTERVAL)[0]:
            click.echo(f"  ... {monotonic() - begun:.0f} s", err=True)
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


def _say_what_to_try(ready: Mapping[str, Any], exported: Mapping[str, str], *, has_broker: bool) -> None:
    root_url = ready["rootUrl"]
    base_url = ready["baseUrl"]
    program = _program()
    click.echo("The queue is up.\n")
    click.echo(f"  root URL         {root_url}\n  legacy base URL  {base_url}")
    if "credentials" in ready:
        client_id = ready["credentials"]["clientId"]
        click.echo(f"  clientId         {client_id}   (a development client: it may do everything)")
        click.echo(f"  accessToken      {ready['credentials']['accessToken']}")
    is_here = "LEGACY_QUEUE_DATA_DIR" not in exported
    watch = (
        "The events are at the broker. This command says how to watch them there:"
        if has_broker
        else "Watch what happens to tasks, in a terminal of its own:"
    )
    click.echo(f"""
In other terminals{f', or eval "$({program} env)" in this directory' if is_here else ""}:

{indent(exports(exported), "  ")}

{watch}

  {program} events

Try, in another terminal{" in this directory" if is_here else ""}:

  {program} create-task {_POOL} -- echo hello
  {program} worker {_POOL} --max-tasks 1
  {program} pools
  curl {base_url}/pending/{_POOL}""")


def _say_how_to_test(settings: Settings) -> None:
    program = _program()
    click.echo(f"""
Look inside there, and let something go wrong:

  {program} requests
  {program} peek {_POOL}
  {program} fault add claimTask --status 503 --times 1""")
    if settings.is_embedded:  # the clock of any other storage cannot be moved
        click.echo(f"  {program} clock advance 21m")


def _program() -> str:
    """How another terminal starts this program."""
    path = Path(sys.argv[0])
    name = "legacy-queue"
    # uv, scripts/up and an activated environment put its own folder on the PATH of this terminal alone
    is_alone = sys.prefix != sys.base_prefix and path.parent == Path(sys.prefix, "bin")
    found = shutil.which(name)
    if found and not is_alone and Path(found).resolve() == path.resolve():
        return name
    relative = os.path.relpath(path)
    return shlex.quote(os.path.abspath(relative) if relative.startswith("..") else relative)


def _say_where_storage_is(settings: Settings) -> None:
    if settings.storage == "azurite":
        file = shlex.quote(str(settings.data_dir / "azurite" / CONNECTION_STRING))
        click.echo(
            "\nLook into Azurite with Azure's tools; the file with its key is for you alone:\n\n"
            f'  export AZURE_STORAGE_CONNECTION_STRING="$(cat {file})"'
        )
    queues = named_queues(_POOL, settings.queue_prefix)
    click.echo(
        f"\nThe queues that workers of {_POOL} poll, made when they are first used:\n\n"
        + indent(queues, "  ")
    )


def _say_where_the_page_is(ready: Mapping[str, Any]) -> None:
    if "credentials" not in ready:
        click.echo(f"\nLook at its page: {_program()} open prints a link.")
        return
    queue = QueueClient(ready["baseUrl"], Credentials.from_wire(ready["credentials"]))
    life = f"{_LINK_LIFE // timedelta(minutes=1)} minutes"
    click.echo(f"\nLook at its page; this link works for {life}, {_program()} open prints another:\n")
    click.echo(f"  {queue.page_link(_LINK_LIFE)}")


@failing_with_a_sentence()
def _demonstrate(ready: Mapping[str, Any]) -> None:
    if "credentials" not in ready:
        raise click.ClickException("--demo uses the development client: configure no clients for it")
    queue = QueueClient(ready["baseUrl"], Credentials.from_wire(ready["credentials"]))
    task_id = slugid()
    begun = monotonic()

    def show(who: str, what: str) -> None:
        """Print a step of the draft's sequence chart, with the seconds since the start."""
        click.echo(f"{monotonic() - begun:6.2f} s  {who:<22} {what}")

    def on_step(step: str, **fields: Any) -> None:
        show(*_charted(step, fields))
        if step == "claim":  # the queue holds the message before it answers
            held = f"message for run {fields['run_id'] + 1} held, invisible until"
            show("Queue -> AzureQueue", f"{held} {fields['taken_until']}")

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
        raise click.ClickException(f"the task is {status['state']}, and should be completed")
    log = b"".join(queue.download(f"{queue.path}/task/{task_id}/artifacts/{LOG}")).decode()
    show("Reader -> Queue", f"getLatestArtifact {LOG}: {log.strip()!r}")


_CHART = {
    "poll-urls": ("Worker -> Queue", "pollTaskUrls: {queues} signed URLs, good until {expires}"),
    "poll": ("Worker -> AzureQueue", "get signedPollUrls[{index}]: {messages} message"),
    "claim": ("Worker -> Queue", "claimTask run {run_id} with messageId, receipt, signature"),
    "run": ("Worker", "executing run {run_id} ..."),
    "reclaim": ("Worker -> Queue", "reclaimTask: taken until {taken_until}"),
    "artifact": ("Worker -> Queue", "createArtifact {name}"),
    "report": ("Worker -> Queue", "report {result}"),
}


def _charted(step: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    """The two columns of this step in the chart: the actors, and the action."""
    if step not in _CHART:
        return "Worker", f"{step} {dict(fields)}"
    who, what = _CHART[step]
    shown = {
        name: format_time(value) if isinstance(value, datetime) else value for name, value in fields.items()
    }
    index = fields.get("queue", 0) - 1
    return who, what.format(**shown, index=index)
