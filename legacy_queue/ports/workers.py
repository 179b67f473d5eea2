"""Provisioners, worker types and workers: what is known of them, and which workers are quarantined."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.workers import Known, Path
from legacy_queue.ports.common import Expiring


@dataclass(frozen=True)
class StoredKnown:
    """What is known of somebody, and the version of it that a conditional write names."""

    known: Known
    etag: str


class WorkerStore(Expiring):
    """Quarantines are also kept apart, until they end: so it is quickly read who gets no work."""

    @abstractmethod
    def load(self, path: Path) -> StoredKnown | None:
        """What is known of them now."""

    @abstractmethod
    def insert(self, known: Known) -> StoredKnown:
        """Store what was not there; raises AlreadyExists."""

    @abstractmethod
    def replace(self, stored: StoredKnown, known: Known) -> StoredKnown:
        """Store it if nobody changed it since ``stored``; raises Changed."""

    @abstractmethod
    def list(self, parent: Path, after: Path, limit: int) -> Sequence[Known]:
        """Up to ``limit`` of those right below ``parent``, which for provisioners is ().

        In the order of their paths, behind the path ``after``, () being the beginning; fewer at the end only.
        """

    @abstractmethod
    def quarantine(self, worker: Path, until: datetime) -> None:
        """The worker is quarantined until then, whatever was said before. Safe to repeat."""

    @abstractmethod
    def quarantined(self) -> Mapping[Path, datetime]:
        """Each worker that is, or was until lately, quarantined, and until when."""
