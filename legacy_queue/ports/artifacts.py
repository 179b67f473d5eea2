"""Artifacts: what is known of them, and their bytes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.artifacts import Artifact


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact and the version of it that a conditional write names."""

    artifact: Artifact
    etag: str


@dataclass(frozen=True)
class ArtifactPage:
    """Some of the artifacts that were asked for; ``after`` continues, None at the end."""

    artifacts: Sequence[StoredArtifact]
    after: str | None


class ArtifactStore(ABC):
    """What is known of each artifact of each run."""

    @abstractmethod
    def load(self, task_id: str, run_id: int, name: str) -> StoredArtifact | None:
        """The artifact as it is now."""

    @abstractmethod
    def insert(self, artifact: Artifact) -> StoredArtifact:
        """Store an artifact that was not there; raises AlreadyExists."""

    @abstractmethod
    def replace(self, stored: StoredArtifact, artifact: Artifact) -> StoredArtifact:
        """Store the artifact if nobody changed it since ``stored``; raises Changed."""

    @abstractmethod
    def remove(self, stored: StoredArtifact) -> None:
        """Forget the artifact if nobody changed it since ``stored``; raises Changed. Safe to repeat."""

    @abstractmethod
    def list(self, task_id: str, run_id: int, after: str, limit: int) -> Sequence[Artifact]:
        """Up to ``limit`` of the run's artifacts behind the one named ``after``, "" being the beginning.

        Ordered by name as far as keys allow, always in the same order; fewer than ``limit`` at the end only.
        """

    @abstractmethod
    def incomplete(self, task_id: str, run_id: int, now: datetime) -> Artifact | None:
        """One of the run's artifacts that is neither complete nor expired, if there is any."""

    @abstractmethod
    def expired(self, now: datetime, after: str, limit: int) -> ArtifactPage:
        """Up to ``limit`` artifacts that expired before ``now``, from where ``after`` says, "" the beginning.

        A page may be empty and not the last.
        """


@dataclass(frozen=True)
class BlobProperties:
    """``length`` in bytes, as they are stored: encoded where there is an encoding."""

    length: int
    content_type: str
    content_encoding: str | None


class Blobs(ABC):
    """Bytes of artifacts, each under a name such as ``Artifact.blob_name``.

    A blob is there as a whole or not at all. What is streamed is never held in memory as a whole; an error
    that ``chunks`` raises goes through, and then nothing is stored. Of two writes of one blob at a time, one
    may end with ServiceUnavailable; they are never mixed.
    """

    @abstractmethod
    def upload_url(self, name: str, expiry: datetime) -> str:
        """A SAS URL, good until then, for writing that blob: by one PUT, or by blocks and their list."""

    @abstractmethod
    def download_url(self, name: str, expiry: datetime) -> str:
        """A SAS URL, good until then, for reading that blob: GET and HEAD, whole or in ranges.

        What is read is an attachment: no browser shows it as a page of that origin.
        """

    @abstractmethod
    def write(
        self, name: str, chunks: Iterable[bytes], content_type: str, content_encoding: str | None
    ) -> None:
        """Store the chunks as the blob, in place of what is there."""

    @abstractmethod
    def write_part(self, name: str, number: int, chunks: Iterable[bytes]) -> None:
        """Keep the chunks, at least a byte, as part ``number``, 1.. in any order, in place of what is there.

        Parts may have 195 GiB together, each counted as a multiple of 4 MiB. Nobody sees parts before they
        are joined; those that never are go by themselves.
        """

    @abstractmethod
    def join_parts(self, name: str, count: int, content_type: str, content_encoding: str | None) -> None:
        """Make the blob of the parts 1 to ``count``; raises KeyError where one of them is missing.

        Safe to repeat, as long as no part is written and nothing else is stored there meanwhile; where the
        blob is what it would be, nothing is written, so that whoever reads it goes on.
        """

    @abstractmethod
    def properties(self, name: str) -> BlobProperties | None:
        """Of the blob, if it is there."""

    @abstractmethod
    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of the blob as they are stored, in chunks; raises KeyError.

        Where it is written or removed meanwhile, the chunks may end with ServiceUnavailable, never mixed.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """The blob is not there any more. Safe to repeat."""


class ObjectStore(ABC):
    """Where ``s3`` artifacts go instead, if there is an S3 endpoint: names are those of Blobs."""

    @abstractmethod
    def upload_url(self, name: str, content_type: str, expiry: datetime) -> str:
        """A presigned URL, good until then, for one PUT with exactly this content-type. Nothing is sent."""

    @abstractmethod
    def download_url(self, name: str, expiry: datetime) -> str:
        """A presigned URL, good until then, for a GET, whole or in ranges. Nothing is sent.

        What is read is an attachment.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """The object is not there any more. Safe to repeat."""
