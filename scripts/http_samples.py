"""`python http_samples.py FILE serve ...`: legacy-queue, whose serving process notes where its time goes.

Every 4 ms of CPU it counts the current stack; SIGRTMIN writes the counts to FILE. For scripts/http-cost.
"""

import json
import os
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

_INTERVAL = 0.004  # seconds of CPU: Linux looks no more often

_stacks: Counter[tuple[str, ...]] = Counter()


def _note(_number: int, frame: FrameType | None) -> None:
    stack = []
    while frame:
        stack.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    _stacks[tuple(stack)] += 1


def _write(file: Path) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps([*_stacks.items()]))
    partial.rename(file)


def _begin(file: Path) -> None:
    """In the process that serves: gunicorn's arbiter forks no other."""
    signal.signal(signal.SIGPROF, _note)
    signal.signal(signal.SIGRTMIN, lambda *_: _write(file))
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)


if __name__ == "__main__":
    result = Path(sys.argv.pop(1))
    os.register_at_fork(after_in_child=lambda: _begin(result))
    runpy.run_module("legacy_queue", run_name="__main__", alter_sys=True)
