"""legacy-queue queues: the Azure queues behind a worker type."""

import click

from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.cli.queue_options import pool_options
from legacy_queue.domain.priority import work_queues


@click.command()
@pool_options(required=True)
@setting_options
def queues(provisioner: str, worker_type: str, **options: str | None) -> None:
    """Print the seven queues of a worker type, highest priority first: priority and name.

    The setting queue-prefix is part of each name. Storage is not asked: a queue is made when it is first
    used.
    """
    settings, _ = settings_of(options)
    click.echo(named_queues(provisioner, worker_type, settings.queue_prefix))


def named_queues(provisioner_id: str, worker_type: str, prefix: str) -> str:
    """A line for each queue."""
    queues = work_queues(provisioner_id, worker_type)
    return "\n".join(f"{queue.priority:<10} {queue.name(prefix)}" for queue in queues)
