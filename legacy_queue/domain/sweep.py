"""Which tasks somebody should look after, though nothing told so. Source: "Sweeper" in design/protocol.md."""

import math
from datetime import datetime, timedelta

FIRST_LOOK = timedelta(minutes=10)


def is_due(since: datetime, last_pass: datetime | None, now: datetime) -> bool:
    """Whether what waits since then is to be looked after now: after 10 minutes, 20, 40, and so on.

    ``last_pass`` is when everything was looked through before. So what waits for days is not offered again
    every few minutes.
    """
    return _looks(now - since) > (_looks(last_pass - since) if last_pass else 0)


def _looks(age: timedelta) -> int:
    return 0 if age < FIRST_LOOK else 1 + math.floor(math.log2(age / FIRST_LOOK))
