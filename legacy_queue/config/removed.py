"""Removed settings: for one release, the server refuses each at its start and says what to do instead."""

from collections.abc import Mapping

# a sentence for each name, which follows "<name> was removed: " and says what to do instead
REMOVED: Mapping[str, str] = {
    "pool-shards": "remove this setting; each priority of a pool has one queue. If it was more than 1, the "
    "server offers the tasks in the other queues again within 20 minutes.",
}
