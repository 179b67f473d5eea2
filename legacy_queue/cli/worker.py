"""legacy-queue worker: the sample worker, until a signal stops it."""

import os
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, get_args

import click
import structlog

from legacy_queue.cli.queue_options import QueueCommand, pool_argument, queue_options
from legacy_queue.config.settings import LOG_FORMATS
from legacy_queue.config.values import matching, number, one_of, without_secrets
from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.queue_client import QueueClient
from legacy_queue.server.logs import log_to_standard_error
from legacy_queue.server.signals import exit_on_signal, handle_stop
from legacy_queue.worker import Protocol, Refused, SampleWorker, WorkerSettings

SHUTDOWN_LIMIT = 30.0  # seconds
_id = matching(IDENTIFIER, "1 to 38 characters of a-z, A-Z, 0-9, - and _", name="id")


def _default_worker_id() -> str:
    """An id that no other process has: two workers with the same id would be given the same claim."""
    ending = f"-{os.getpid()}"
    return re.sub(r"[^a-zA-Z0-9-_]", "-", socket.gethostname())[: 22 - len(ending)] + ending


@click.command(cls=QueueCommand)
@queue_options
@pool_argument
@click.option("--worker-group", type=_id, default="sample", help="Its workerGroup.")
@click.option("--worker-id", type=_id, show_default="host name and process id", help="Its workerId.")
@click.option(
    "--protocol",
    type=one_of(*get_args(Protocol)),
    default="draft",
    metavar="NAME",
    help="How to find work: draft and deployed poll Azure queues, as the draft of the protocol says or as "
    "Mozilla's workers did; claimwork calls claimWork.",
)
@click.option("--capacity", type=number(1), default=1, help="How many tasks to run at the same time.")
@click.option("--max-tasks", type=number(1), show_default="no limit", help="End after this many tasks.")
@click.option(
    "--log-format",
    type=one_of(*LOG_FORMATS),
    default="auto",
    metavar="NAME",
    help="The format of the log: text, json, or auto (text at a terminal, else json).",
)
def worker(queue: QueueClient, pool: str, worker_id: str | None, log_format: str, **settings: Any) -> None:
    """Run the tasks of the pool POOL (provisionerId/workerType) until SIGTERM or Ctrl-C.

    The worker claims a task, runs its command, uploads the log as public/logs/live.log and the files that the
    payload lists under artifacts, and reports the result. It logs each step to standard error, and prints the
    task's own log to standard output.

    At the first signal it reports its running tasks as exceptions (worker-shutdown) and ends. At a second
    signal it exits at once.
    """
    complete = WorkerSettings(
        base_url=queue.base_url,
        credentials=queue.credentials,
        pool=pool,
        worker_id=worker_id or _default_worker_id(),
        **settings,  # the other options have the names of the fields
    )
    log_to_standard_error(log_format)
    try:
        run_until_signalled(SampleWorker(complete, on_step=_log_step))
    except Refused as refused:
        server = without_secrets(queue.root_url)
        raise click.ClickException(f"the server at {server} refused this worker: {refused}") from None


def _log_step(step: str, **fields: Any) -> None:
    logger = structlog.get_logger("legacy_queue.worker")
    (logger.warning if step == "failure" else logger.info)(step, **fields)


def run_until_signalled(worker: SampleWorker) -> None:
    """Run the worker until it ends. At the first SIGTERM or SIGINT it reports its tasks and ends.

    A second signal, or the end of the shutdown limit, exits at once. By then the tasks' commands are killed.
    Raises Refused if the queue refuses the worker.
    """
    ended = ThreadPoolExecutor(1).submit(worker.run)

    def stop(number: int, _frame: FrameType | None) -> None:
        exit_on_signal(128 + number)
        limit = threading.Timer(SHUTDOWN_LIMIT, os._exit, (128 + number,))
        limit.daemon = True
        limit.start()
        worker.stop()

    handle_stop(stop)
    while not wait([ended], timeout=1).done:
        pass  # without the timeout, a signal that another thread received would not be handled
    ended.result()
