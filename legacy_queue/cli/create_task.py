"""legacy-queue create-task: a task for the sample worker, without writing a client first."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from legacy_queue.cli.queue_options import ask, pool_options, queue_options
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.worker import Credentials


@click.command()
@queue_options
@pool_options(required=True)
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
def create_task(
    base_url: str, credentials: Credentials, provisioner: str, worker_type: str, words: tuple[str, ...]
) -> None:
    """Create a task whose payload is a command, and print its taskId."""
    task_id = slugid()
    create(base_url, credentials, task_id, (provisioner, worker_type), words)
    click.echo(task_id)


def create(
    base_url: str, credentials: Credentials, task_id: str, pool: tuple[str, str], words: Sequence[str]
) -> None:
    """Create the task, with a deadline in an hour; a refusal ends the command with the queue's answer."""
    now = datetime.now(UTC)
    definition = {
        "provisionerId": pool[0],
        "workerType": pool[1],
        "created": format_time(now),
        "deadline": format_time(now + timedelta(hours=1)),
        "payload": {"command": list(words), "maxRunTime": 600},
        "metadata": {
            "name": words[0][:255],
            "description": "Created by legacy-queue create-task",
            "owner": "nobody@example.com",
            "source": "https://example.com/legacy-queue",
        },
    }
    answer = ask("PUT", base_url, f"/task/{task_id}", credentials, json=definition)
    if answer.status_code != 200:
        raise click.ClickException(f"createTask was refused with {answer.status_code}: {answer.text}")
