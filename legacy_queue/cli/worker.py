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

from legacy_queue.cli.queue_options import identifier, pool_argument, queue_options
from legacy_queue.config.settings import LOG_FORMATS
from legacy_queue.queue_client import QueueClient
from legacy_queue.server.logs import log_to_standard_error
from legacy_queue.server.signals import exit_on_signal, handle_stop
from legacy_queue.worker import Protocol, Refused, SampleWorker, WorkerSettings

SHUTDOWN_LIMIT = 30.0  # seconds


def _default_worker_id() -> str:
    """A different id for each process: two workers with the same id would get the same claim."""
    ending = f"-{os.getpid()}"
    return re.sub(r"[^a-zA-Z0-9-_]", "-", socket.gethostname())[: 22 - len(ending)] + ending


@click.command()
@queue_options
@pool_argument
@click.option("--worker-group", type=identifier, default="sample")
@click.option("--worker-id", type=identifier, show_default="the host's name and the process id")
@click.option(
    "--protocol",
    type=click.Choice(get_args(Protocol)),
    default="draft",
    help="How to find work: poll Azure queues, as in the draft or as deployed workers do, or call claimWork.",
)
@click.option(
    "--capacity",
    type=click.IntRange(min=1),
    default=1,
    help="The number of tasks at the same time.",
)
@click.option(
    "--max-tasks", type=click.IntRange(min=1), show_default="no end", help="End after this number of tasks."
)
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    default="auto",
    help="The format of the steps: text, json, or auto: text at a terminal, else json.",
)
def worker(
    queue: QueueClient,
    pool: str,
    worker_id: str | None,
    log_format: str,
    **settings: Any,
) -> None:
    """Poll for tasks of a POOL, provisionerId/workerType: run them, upload their artifacts, report.

    When a task has ended, its log becomes public/logs/live.log; the files under artifacts in its payload
    become artifacts too. Each step is a line on standard error; the log goes to standard output as well.
    SIGTERM or Ctrl-C reports running tasks worker-shutdown; a second signal exits at once.
    """
    complete = WorkerSettings(
        base_url=queue.base_url,
        credentials=queue.credentials,
        pool=pool,
        worker_id=worker_id or _default_worker_id(),
        **settings,  # the other options have the names of the fields
    )
    log_to_standard_error(log_format)
    run_until_signalled(SampleWorker(complete, on_step=_log_step))


def _log_step(step: str, **fields: Any) -> None:
    logger = structlog.get_logger("legacy_queue.worker")
    (logger.warning if step == "failure" else logger.info)(step, **fields)


def run_until_signalled(worker: SampleWorker) -> None:
    """Run the worker to its end. At a SIGTERM or SIGINT it reports its tasks and ends.

    A second signal, or the end of the shutdown limit, exits at once: the commands are killed by then.
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
        pass  # the timeout lets the interpreter handle a signal that another thread has received
    try:
        ended.result()
    except Refused as refused:
        raise click.ClickException(f"The queue refused this worker. {refused}") from None
