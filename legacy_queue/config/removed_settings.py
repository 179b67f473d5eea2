"""Removed settings. For one release, the server refuses to start with one, and says what to do instead."""

from collections.abc import Mapping

_EACH_SERVER_RECOVERS = "leave it out; every server now does the background work."
# each sentence follows "<name> was removed: " and says what to do instead
REMOVED: Mapping[str, str] = {
    "pool-shards": "leave it out; each priority of a pool now has one queue. If the setting was more than 1, "
    "the server offers the tasks in the other queues again within 20 minutes.",
    **dict.fromkeys(("resolvers", "no-resolvers"), _EACH_SERVER_RECOVERS),
    "resolver-port": "leave it out; it was for the command `legacy-queue resolve`, which was removed too.",
    "rabbitmq": "use `scripts/up --rabbitmq` in a clone, or give the URL of a RabbitMQ as amqp-url.",
}
