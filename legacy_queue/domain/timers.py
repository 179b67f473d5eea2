"""Messages to ourselves, in the queue's own Azure queues.

A timer is put *before* the write that it belongs to and first fires soon after: what a crash between the
write and its consequences left undone is then done (``untold``). A call that came to its end confirms the
timer, which from then on waits for what it is named after: the end of a claim, the deadline of a task.
Source: "Timers" in design/protocol.md.
"""

import json
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from legacy_queue.domain.events import EXCHANGES
from legacy_queue.domain.ids import MAX_RUNS, TASK_ID
from legacy_queue.domain.times import format_time, parse_time

CLAIMS, DEADLINES, RESOLVED = "claims", "deadlines", "resolved"

# Longer than a call takes as a rule, and so short that what a killed process left goes on within 30 s, the
# pause between two looks included. A timer that fires during its call repeats what is safe to repeat.
FIRST_FIRES_AFTER = timedelta(seconds=15)

_MAX_TRIES = 2**31  # a dequeue count of Azure's has 32 bits


@dataclass(frozen=True)
class Timer:
    """``due``: when what it is named after happens; None for one that only sees a transition through.

    ``untold`` names the events about ``run_id`` that may not have been told; ``armed`` is when it was put,
    and ``after`` how far its handler came where it takes several turns. ``tries`` is the dequeue count at
    which its tries began to be counted. ``task_group_id`` is the group that a new task has joined.
    """

    queue: str
    task_id: str
    armed: datetime
    run_id: int | None = None
    due: datetime | None = None
    untold: tuple[str, ...] = ()
    after: str = ""
    tries: int = 0
    task_group_id: str = ""

    def first_fires_after(self) -> timedelta:
        """How long after it was put it fires unless it was confirmed: soon, but not past what it is for."""
        if self.due is None or self.due <= self.armed:
            return FIRST_FIRES_AFTER
        return min(FIRST_FIRES_AFTER, self.due - self.armed)

    def confirmed(self) -> Self:
        """The timer once everything was told."""
        return replace(self, untold=())

    def text(self) -> str:
        """The text of its message."""
        wire = {
            "taskId": self.task_id,
            "runId": self.run_id,
            "armed": format_time(self.armed),
            "due": self.due and format_time(self.due),
            "untold": list(self.untold),
            "after": self.after,
            "tries": self.tries,
            "taskGroupId": self.task_group_id,
        }
        return json.dumps({name: value for name, value in wire.items() if value or name == "runId"})

    @classmethod
    def from_text(cls, queue: str, text: str) -> Self:
        """The inverse of ``text``; raises ValueError for what is no timer.

        A timer that is read holds nothing that storage would refuse for ever.
        """
        try:
            wire = json.loads(text)
            run_id = wire.get("runId")
            return cls(
                queue,
                _id(wire["taskId"]),
                parse_time(wire["armed"]),
                run_id if run_id is None else _number(run_id, MAX_RUNS),
                parse_time(wire["due"]) if "due" in wire else None,
                tuple(_event(name) for name in wire.get("untold", ())),
                _id(wire["after"]) if wire.get("after") else "",
                _number(wire.get("tries", 0), _MAX_TRIES),
                _id(wire["taskGroupId"]) if wire.get("taskGroupId") else "",
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a timer: {type(error).__name__}") from None


def _id(value: Any) -> str:
    if not re.fullmatch(TASK_ID, value):
        raise ValueError("not a timer: an id is no slugid")
    return str(value)


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"not a timer: a number is not between 0 and {most}")
    return value


def _event(name: Any) -> str:
    if name not in EXCHANGES:
        raise ValueError("not a timer: an event has no such name")
    return str(name)
