"""How many calls of which kind a worker or a client has made for a pool, and when.

A caller is a worker, or the client of pollTaskUrls, of polls and of reads. Its calls are kept for ten days.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

POLL_TASK_URLS = "pollTaskUrls"
POLL = "poll"  # by a signed URL of this server
CLAIM_TASK = "claimTask"
CLAIM_WORK = "claimWork"
TODAYS_CLAIM_WORK = "claimWork by taskQueueId"  # by clients since 2020
METHODS = (POLL_TASK_URLS, POLL, CLAIM_TASK, CLAIM_WORK, TODAYS_CLAIM_WORK)

# the method, and the fields that a claimTask left out, or the scopes that a read needs
CallKind = tuple[str, tuple[str, ...]]

CALLS_KEPT = timedelta(days=10)  # after the last of them
READERS = "", ""  # in place of provisionerId and workerType: of clients that read
_MAX_CALLER = 255  # characters
_TASK_CLIENT = re.compile(r"task-client/[^/]+/[^/]+/on/([^/]+/[^/]+)/until/\d+")


@dataclass(frozen=True)
class Calls:
    """How many calls, and when the first and the last of them were."""

    count: int
    first: datetime
    last: datetime

    def plus(self, other: "Calls") -> "Calls":
        """The sum of both."""
        return Calls(self.count + other.count, min(self.first, other.first), max(self.last, other.last))


def caller_name(caller: str) -> str:
    """The caller, cut. A clientId of a claim loses its task, so that a worker always has the same name."""
    return _TASK_CLIENT.sub(r"task-client/*/on/\1", caller)[:_MAX_CALLER]
