"""The system's clock."""

from datetime import UTC, datetime

from legacy_queue.domain.times import to_milliseconds
from legacy_queue.ports import Clock


class SystemClock(Clock):
    def now(self) -> datetime:
        return to_milliseconds(datetime.now(UTC))
