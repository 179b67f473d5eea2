"""Bytes of artifacts."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from legacy_queue.adapters.memory_blob import MemoryBlob, MemoryContainer
from legacy_queue.adapters.sas import BlobSigner
from legacy_queue.ports import BlobProperties, Blobs, Clock


class MemoryBlobs(Blobs):
    """``container`` is what clients write and read through the gateway; the rest is the port."""

    def __init__(self, clock: Clock, signer: BlobSigner) -> None:
        self._clock, self._signer = clock, signer
        self.container = MemoryContainer(signer.container)

    def upload_url(self, name: str, expiry: datetime) -> str:
        return self._signer.upload_url(name, self._clock.now(), expiry)

    def download_url(self, name: str, expiry: datetime) -> str:
        return self._signer.download_url(name, self._clock.now(), expiry)

    def write(
        self, name: str, chunks: Iterable[bytes], content_type: str, content_encoding: str | None
    ) -> None:
        blocks = [("", b"".join(chunks))]
        self.container.put(name, MemoryBlob(blocks, content_type, content_encoding, self._clock.now()))

    def write_part(self, name: str, number: int, chunks: Iterable[bytes]) -> None:
        self.container.put_block(name, str(number), b"".join(chunks), self._clock.now())

    def join_parts(self, name: str, count: int, content_type: str, content_encoding: str | None) -> None:
        wanted = [("Latest", str(number)) for number in range(1, count + 1)]
        blocks = self.container.find_blocks(name, wanted)
        self.container.put(name, MemoryBlob(blocks, content_type, content_encoding, self._clock.now()))

    def properties(self, name: str) -> BlobProperties | None:
        blob = self.container.get(name)
        return blob.properties if blob else None

    def read(self, name: str) -> Iterator[bytes]:
        blob = self.container.get(name)
        if blob is None:
            raise KeyError(name)
        return blob.read()

    def remove(self, name: str) -> None:
        self.container.remove(name)
