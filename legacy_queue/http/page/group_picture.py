"""The dependencies of a group's tasks as a picture: a row for each task, below all tasks that it requires.

A line leads down from a task to those that require it. Up to 30 lines that go on side by side have lanes of
their own. The rows are those of a table: lines are longer than a row can be high, and the table's style cuts
them at its edges.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_STEP = 16  # CSS pixels between two lanes, or less if there are many
_MIN_STEP = 4  # lanes that would be closer are one
_MAX_WIDTH = 120  # of all lanes
_MIDDLE = 10  # of a row's first line of text
_GAP = 7  # between a line and the shape of a task
_MAX_NAMES = 5  # of required tasks in a row
_SHAPES = {  # in the order of a task's life
    "unscheduled": '<circle r="4" stroke-dasharray="1.5 1.65"/>',
    "pending": '<circle r="4"/>',
    "running": '<circle r="4.5" fill="currentColor"/>',
    "completed": '<path d="M-5 0-1.5 4 5-4" stroke-width="2.5"/>',
    "failed": '<path d="M-4-4 4 4M-4 4 4-4" stroke-width="2.5"/>',
    "exception": '<path d="M0-5 5 4H-5Z" fill="currentColor"/>',
}

ShownTask = Mapping[str, Any]


class GroupRow(NamedTuple):
    """A task, the names of some tasks of the group that it requires, and the SVG of its row."""

    task: ShownTask
    requires: Sequence[str]
    svg: str


def group_rows(tasks: Sequence[ShownTask]) -> Iterator[GroupRow]:
    """The rows, from top to bottom. Each task needs ``taskId``, ``name``, ``state`` and ``dependencies``."""
    known = {task["taskId"]: task for task in tasks}
    required = {
        task_id: [each for each in task["dependencies"] if each in known and each != task_id]
        for task_id, task in known.items()
    }
    order = [*_in_order(required)]
    last = {other: row for row, task_id in enumerate(order) for other in required[task_id]}
    lanes = _lanes(order, required, last)
    step = min(_STEP, _MAX_WIDTH / max([1, *lanes.values()]))
    places = {task_id: 8 + round(step * lane / _MIN_STEP) * _MIN_STEP for task_id, lane in lanes.items()}
    width = 8 + max(places.values(), default=0)
    going_on: set[str] = set()
    for row, task_id in enumerate(order):
        going_on = {other for other in going_on if last[other] > row}
        lines = [f"M{places[other]}-99V999" for other in going_on]
        lines += [_line(places[other], places[task_id]) for other in required[task_id]]
        if task_id in last:
            going_on.add(task_id)
            lines.append(f"M{places[task_id]} {_MIDDLE + _GAP}V999")
        state = known[task_id]["state"]
        shape = f'<g class="{state}" transform="translate({places[task_id]} {_MIDDLE})">{_SHAPES[state]}</g>'
        lane = f'<path d="{"".join(sorted({*lines}))}"/>'
        svg = f'<svg width="{width}" height="20" aria-hidden="true">{lane}{shape}</svg>'
        names = [str(known[other]["name"] or other) for other in required[task_id][:_MAX_NAMES]]
        if len(required[task_id]) > _MAX_NAMES:
            names.append(f"and {len(required[task_id]) - _MAX_NAMES} more")
        yield GroupRow(known[task_id], names, svg)


def _in_order(required: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Each task, after all tasks that it requires, and as soon after the last of them as possible."""
    dependents: dict[str, list[str]] = {task_id: [] for task_id in required}
    for task_id, others in required.items():
        for other in others:
            dependents[other].append(task_id)
    waits = {task_id: len(others) for task_id, others in required.items()}
    ahead = [task_id for task_id, count in waits.items() if not count][::-1]
    while ahead:
        task_id = ahead.pop()
        yield task_id
        for dependent in dependents[task_id]:
            waits[dependent] -= 1
        ahead += [each for each in reversed(dependents[task_id]) if not waits[each]]


def _lanes(
    order: Sequence[str], required: Mapping[str, Sequence[str]], last: Mapping[str, int]
) -> Mapping[str, int]:
    """The lane of each task: right of all tasks that it requires. A chain of tasks stays in one lane."""
    lanes: dict[str, int] = {}
    taken: dict[int, str] = {}
    dependents = [other for others in required.values() for other in others]
    for row, task_id in enumerate(order):
        taken = {lane: other for lane, other in taken.items() if last[other] >= row}
        others = required[task_id]
        lane = max((lanes[other] for other in others), default=-1)
        if len(others) != 1 or dependents.count(others[0]) != 1:
            lane = next(each for each in range(lane + 1, len(order) + 1) if each not in taken)
        lanes[task_id] = lane
        if task_id in last:
            taken[lane] = task_id
    return lanes


def _line(begin: int, end: int) -> str:
    """Down from a task that is required, then to the right to the one that requires it."""
    if begin == end:
        return f"M{begin}-99V{_MIDDLE - _GAP}"
    return f"M{begin}-99V{_MIDDLE - 6}q0 6 6 6H{max(begin + 6, end - _GAP)}"
