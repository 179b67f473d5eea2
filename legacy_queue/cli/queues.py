"""legacy-queue queues: the Azure queues behind a worker type."""

import click

from legacy_queue.cli.options import setting_options, settings_of
from legacy_queue.cli.queue_options import pool_argument
from legacy_queue.domain.priority import work_queues


@click.command()
@pool_argument
@setting_options
def queues(pool: str, **options: str | None) -> None:
    """Print the queues of a worker type, highest priority first: priority and name.

    The setting queue-prefix is part of each name, and pool-shards is their number for each priority. Storage
    is not asked: a queue is made when it is first used.
    """
    settings, _ = settings_of(options)
    click.echo(named_queues(pool, settings.queue_prefix, settings.pool_shards))


def named_queues(pool: str, prefix: str, shards: int) -> str:
    """A line for each queue of ``provisionerId/workerType``."""
    provisioner_id, worker_type = pool.split("/")
    queues = work_queues(provisioner_id, worker_type, shards)
    return "\n".join(f"{queue.priority:<10} {queue.name(prefix)}" for queue in queues)
