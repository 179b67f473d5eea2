"""Who calls what, as the processes have counted it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.usage import CountedUse
from legacy_queue.ports.common import Expiring


@dataclass(frozen=True)
class UsagePage:
    """Some of what was asked for; ``after`` continues, None at the end."""

    counted: Sequence[CountedUse]
    after: str | None


class UsageStore(Expiring):
    """Kept for ``KEPT`` after its hour."""

    @abstractmethod
    def put(self, counted: Sequence[CountedUse]) -> None:
        """Keep each, in the place of what is there of the same process, hour and use. Safe to repeat."""

    @abstractmethod
    def since(
        self, hour: datetime, provisioner_id: str | None, worker_type: str | None, after: str, limit: int
    ) -> UsagePage:
        """Up to ``limit`` of what was counted from that hour on, from where ``after`` says, "" the beginning.

        Of that provisionerId and that workerType, None being any; NOT_RECORDED belongs to each. A page may be
        empty and not the last.
        """
