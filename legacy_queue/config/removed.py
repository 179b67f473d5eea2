"""Removed settings: for one release, the server refuses each at its start and says what to do instead."""

from collections.abc import Mapping

_EACH_SERVER_RECOVERS = "leave it out; each server now does the background work."
# a sentence for each name, which follows "<name> was removed: " and says what to do instead
REMOVED: Mapping[str, str] = {
    "pool-shards": "remove this setting; each priority of a pool has one queue. If it was more than 1, the "
    "server offers the tasks in the other queues again within 20 minutes.",
    **dict.fromkeys(("resolvers", "no-resolvers"), _EACH_SERVER_RECOVERS),
    "resolver-port": "leave it out; the command `legacy-queue resolve`, whose port it was, was removed too.",
    "rabbitmq": "use `scripts/up --rabbitmq` in a clone, or give the URL of a RabbitMQ as amqp-url.",
}
