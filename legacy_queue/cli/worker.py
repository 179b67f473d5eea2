"""legacy-queue worker: the sample worker, until it is told to stop."""

import json
import os
import re
import select
import signal
import socket
import threading
from datetime import timedelta

import click

from legacy_queue.cli.logs import log_to_standard_error
from legacy_queue.worker import Credentials, Protocol, QueueRefused, Worker, WorkerSettings
from legacy_queue.worker.settings import base_url_of

SHUTDOWN_LIMIT = timedelta(seconds=30)

ENDED = b"\0"  # no signal's number

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _identifier(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[a-zA-Z0-9-_]{1,22}", value):
        raise click.BadParameter(f"{value!r} is not 1 to 22 of a-z, A-Z, 0-9, - and _")
    return value


def _duration(_ctx: click.Context, _param: click.Parameter, value: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h)", value)
    if not match:
        raise click.BadParameter(f"{value!r} is not a duration like 1s, 500ms or 2m")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def _certificate(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        if value and not isinstance(json.loads(value), dict):
            raise ValueError
    except ValueError:
        raise click.BadParameter("a certificate is a JSON object") from None
    return value


def _default_worker_id() -> str:
    """Another one for each process: two workers of one name would be given one claim."""
    ending = f"-{os.getpid()}"
    return re.sub(r"[^a-zA-Z0-9-_]", "-", socket.gethostname())[: 22 - len(ending)] + ending


@click.command()
@click.option(
    "--root-url",
    envvar=["LEGACY_QUEUE_ROOT_URL", "TASKCLUSTER_ROOT_URL"],
    show_envvar=True,
    help="The queue's root URL.",
)
@click.option(
    "--base-url",
    envvar="LEGACY_QUEUE_BASE_URL",
    show_envvar=True,
    help="Instead: its legacy base URL, with the /v1.",
)
@click.option("--client-id", envvar="TASKCLUSTER_CLIENT_ID", show_envvar=True, required=True)
@click.option(
    "--access-token",
    envvar="TASKCLUSTER_ACCESS_TOKEN",
    show_envvar=True,
    required=True,
    help="Better in the environment.",
)
@click.option(
    "--certificate",
    envvar="TASKCLUSTER_CERTIFICATE",
    show_envvar=True,
    callback=_certificate,
    help="For temporary ones.",
)
@click.option("--provisioner", callback=_identifier, required=True, help="The provisionerId.")
@click.option("--worker-type", callback=_identifier, required=True)
@click.option("--worker-group", callback=_identifier, default="sample", show_default=True)
@click.option("--worker-id", callback=_identifier, help="Default: the host's name and the process id.")
@click.option(
    "--protocol", type=click.Choice([p.value for p in Protocol]), default="draft", show_default=True
)
@click.option("--capacity", type=click.IntRange(min=1), default=1, show_default=True, help="Tasks at once.")
@click.option("--max-tasks", type=click.IntRange(min=1), help="End after so many tasks. Default: no end.")
@click.option(
    "--poll-interval", callback=_duration, default="1s", show_default=True, help="When all is empty."
)
def worker(
    root_url: str | None,
    base_url: str | None,
    client_id: str,
    access_token: str,
    certificate: str | None,
    provisioner: str,
    worker_type: str,
    worker_group: str,
    worker_id: str | None,
    protocol: str,
    capacity: int,
    max_tasks: int | None,
    poll_interval: timedelta,
) -> None:
    """Poll for tasks of a worker type, run them and report what came of them.

    Each step is a line of JSON on standard error; what the tasks print goes to standard output.
    SIGTERM or Ctrl-C reports the running tasks worker-shutdown; a second one exits at once.
    """
    url = base_url or (base_url_of(root_url) if root_url else "")
    if not re.match(r"https?://[^/]", url):
        raise click.UsageError(
            "Say where the queue is: --root-url or --base-url, starting with http:// or https://"
        )
    settings = WorkerSettings(
        base_url=url,
        credentials=Credentials(client_id, access_token, certificate),
        provisioner_id=provisioner,
        worker_type=worker_type,
        worker_group=worker_group,
        worker_id=worker_id or _default_worker_id(),
        protocol=Protocol(protocol),
        capacity=capacity,
        max_tasks=max_tasks,
        poll_interval=poll_interval,
    )
    log_to_standard_error()
    run_until_signalled(Worker(settings))


def run_until_signalled(worker: Worker) -> None:
    """Run the worker to its end, or to a SIGTERM or SIGINT and the orderly end that it asks for.

    A second signal, or no end within the shutdown limit, kills the commands and exits at once. The worker
    runs in a thread of its own, and signals come through a pipe: any thread may be the one to receive
    them, and a handler must not take a lock that the main thread may hold.
    """
    news, tell = os.pipe()
    os.set_blocking(tell, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(tell)  # a byte for each signal: its number
    failures: list[Exception] = []

    def work() -> None:
        try:
            worker.run()
        except Exception as failure:  # noqa: BLE001  raised again below, in the main thread
            failures.append(failure)
        os.write(tell, ENDED)

    threading.Thread(target=work, daemon=True).start()
    if (caught := os.read(news, 1)) != ENDED:
        worker.stop()
        in_time, _, _ = select.select([news], [], [], SHUTDOWN_LIMIT.total_seconds())
        if not in_time or os.read(news, 1) != ENDED:
            worker.kill()
            os._exit(128 + caught[0])
    for failure in failures:
        if isinstance(failure, QueueRefused):
            raise click.ClickException(f"The queue refused this worker. {failure}")
        raise failure
