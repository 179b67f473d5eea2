"""A task's log: what it prints and what its worker has to say of it, readable while it grows."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Self

from legacy_queue.worker.clock import Clock
from legacy_queue.worker.http import PIECE

LOOK_AGAIN = 0.1  # seconds

Output = int | IO[bytes] | None  # a file or its descriptor; None is the worker's own standard output


class TaskLog:
    """A file without a name, which only its holders find. It is written to by ``file`` and ``say``."""

    def __init__(self, clock: Clock) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by __exit__
        self._clock = clock
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.file.close()

    def say(self, sentence: str) -> None:
        """A line of the worker's own."""
        self.file.write(f"[worker] {sentence}\n".encode(errors="replace"))

    def end(self) -> None:
        """Nothing more will be written: whoever follows comes to an end."""
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

    def copy_to(self, output: Output) -> threading.Thread:
        """Have it written there too, by a thread that ends with the log."""
        match output:
            case None:
                target = 1
            case int():
                target = output
            case _:
                target = output.fileno()
        copying = threading.Thread(target=self._copy, args=[target], daemon=True)
        copying.start()
        return copying

    def _copy(self, target: int) -> None:
        with suppress(OSError):  # nobody reads it any more: the log is kept all the same
            for piece in self.follow():
                left = piece
                while left:
                    left = left[os.write(target, left) :]
