"""A task's log: what it prints and what its worker says about it, readable while it grows."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Self

from legacy_queue.worker.clock import Clock
from legacy_queue.worker.http import PIECE

LOOK_AGAIN = 0.1  # seconds

Output = IO[bytes] | None  # None is the worker's own standard output


class TaskLog:
    """A file without a name, written to by ``file`` and ``say`` and copied to ``output`` meanwhile."""

    def __init__(self, clock: Clock, output: Output) -> None:
        self._target = output.fileno() if output else 1
        self._clock = clock
        self._ended = threading.Event()
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by __exit__
        self._copying = threading.Thread(target=self._copy, daemon=True)

    def __enter__(self) -> Self:
        self._copying.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._copying.join()
        self.file.close()

    def say(self, sentence: str) -> None:
        """A line of the worker's own."""
        self.file.write(f"[worker] {sentence}\n".encode(errors="replace"))

    def end(self) -> None:
        """Nothing more will be written: every ``follow`` comes to its end."""
        self._ended.set()

    def follow(self) -> Iterator[bytes]:
        """All of it, from its start to its end, as it is written."""
        own, at = os.dup(self.file.fileno()), 0
        try:
            while True:
                is_whole = self._ended.is_set()
                while piece := os.pread(own, PIECE, at):  # not read: the command writes at the file's offset
                    at += len(piece)
                    yield piece
                if is_whole:
                    return
                self._clock.wait(self._ended, LOOK_AGAIN)
        finally:
            os.close(own)

    def _copy(self) -> None:
        with suppress(OSError), open(self._target, "wb", closefd=False) as target:  # its reader may be gone
            for piece in self.follow():
                target.write(piece)
                target.flush()
