"""Counts what SQLite drops from a damaged WAL: everything after the first frame that it cannot read.

SQLite does not report this. Source: sqlite.org/fileformat2.html, "The Write-Ahead Log", and
sqlite.org/walformat.html. Numbers in a WAL are big-endian, except the words of a checksum.
"""

import struct
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

_HEADER = 32  # bytes: magic, version, page size, checkpoint, two salts, checksum
# bytes before each page: its number, size of the file after a commit (else 0), two salts, checksum
_FRAME = 24
_MAGIC = 0x377F0682  # if it is one more, the words of a checksum are big-endian


class Wal(NamedTuple):
    """The header of a WAL and, for each whole frame, whether it ends a transaction and its salts."""

    head: bytes
    frames: list[tuple[bool, bytes]]

    def dropped(self, readable: int) -> int:
        """Return how many transactions end after the first ``readable`` frames.

        A new WAL overwrites an older one, so frames with other salts may follow. A kill leaves at most the
        last frame half-written, either before such older frames or at the end of the file.
        """
        salts = self.head[16:24] if self._has_head() else self._most_common()
        behind = [
            (at, is_end) for at, (is_end, salt) in enumerate(self.frames) if at >= readable and salt == salts
        ]
        if [at for at, _ in behind] == [readable] and len(self.frames) > readable + 1:
            return 0
        return sum(is_end for _, is_end in behind)

    def _has_head(self) -> bool:
        """Whether the header is valid."""
        magic = int.from_bytes(self.head[:4])
        words = struct.unpack(">8I" if magic & 1 else "<8I", self.head)
        first = second = 0
        for at in (0, 2, 4):
            first = (first + words[at] + second) & 0xFFFFFFFF
            second = (second + words[at + 1] + first) & 0xFFFFFFFF
        return magic | 1 == _MAGIC | 1 and struct.pack(">2I", first, second) == self.head[24:]

    def _most_common(self) -> bytes:
        return Counter(salt for _, salt in self.frames).most_common(1)[0][0] if self.frames else b""


def read_wal(path: Path, page_size: int) -> Wal:
    """Read the headers of a WAL, not its pages. Raises OSError."""
    frames = []
    with path.open("rb") as file:
        head = file.read(_HEADER).ljust(_HEADER, b"\0")
        for _ in range((path.stat().st_size - _HEADER) // (_FRAME + page_size)):
            frame = file.read(_FRAME)
            file.seek(page_size, 1)
            frames.append((any(frame[4:8]), frame[8:16]))
    return Wal(head, frames)


def readable_frames(shared_memory: Path) -> int:
    """Return how many frames, from the first, SQLite considers valid. It says so in its index of the WAL."""
    return int.from_bytes(shared_memory.read_bytes()[16:20], sys.byteorder)
