"""The dependencies of a group's tasks as a picture: a row for each task, those it depends on above it."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

_ROW = 22  # height of a row, in units of the picture
_WIDTH = 400
_MAX_STEP = 18  # between two levels
_MAX_INDENT = 120  # of all levels
_SHIFTS = 5  # places of the tasks of a level, so that lines of different tasks differ
_CHARACTER = 7.25  # the width of monospace text of 12 px

ShownTask = Mapping[str, Any]


def group_svg(tasks: Sequence[ShownTask]) -> str:
    """SVG of the tasks: each has ``taskId``, ``name``, ``state`` and its ``dependencies``.

    A task is right of and below all of its dependencies in the group. Its row links to its page.
    """
    known = {task["taskId"]: task for task in tasks}
    required = {
        task_id: [each for each in task["dependencies"] if each in known and each != task_id]
        for task_id, task in known.items()
    }
    levels = dict(_in_order(required))
    step = min(_MAX_STEP, _MAX_INDENT / max(1, *levels.values(), 1))
    places = {
        task_id: (8 + step * (level + row % _SHIFTS / (_SHIFTS + 1)), _ROW * (row + 0.5))
        for row, (task_id, level) in enumerate(levels.items())
    }
    lines = [_line(places[one], places[task_id]) for task_id in levels for one in required[task_id]]
    labels = 10 + max((x for x, _ in places.values()), default=0)  # right of all lines
    rows = [
        _row(known[task_id], [known[one] for one in required[task_id]], *places[task_id], labels)
        for task_id in levels
    ]
    return (
        f'<svg class="picture" viewBox="0 0 {_WIDTH} {_ROW * len(rows)}" width="100%" role="group" '
        f'aria-label="{len(rows)} tasks and {len(lines)} dependencies among them" font-size="12" '
        'font-family="ui-monospace, monospace"><g fill="none" stroke="currentColor" stroke-opacity="0.6">'
        f"{''.join(lines)}</g>{''.join(rows)}</svg>"
    )


def _in_order(required: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """Each task and its level, as soon as possible behind the last of those that it requires."""
    dependents: dict[str, list[str]] = {task_id: [] for task_id in required}
    for task_id, others in required.items():
        for other in others:
            dependents[other].append(task_id)
    waits = {task_id: len(others) for task_id, others in required.items()}
    levels: dict[str, int] = {}
    ahead = [task_id for task_id, count in waits.items() if not count]
    while ahead:
        task_id = ahead.pop()
        levels[task_id] = 1 + max((levels[other] for other in required[task_id]), default=-1)
        yield task_id, levels[task_id]
        for dependent in dependents[task_id]:
            waits[dependent] -= 1
            ahead += [dependent] if not waits[dependent] else []


def _line(begin: tuple[float, float], end: tuple[float, float]) -> str:
    """Down from a dependency, then to the right into the task."""
    (x, y), (to_x, to_y) = begin, end
    return f'<path d="M{x:.1f} {y:g}V{to_y - 5:g}L{min(x + 5, to_x):.1f} {to_y:g}H{to_x:.1f}"/>'


def _row(task: ShownTask, required: Sequence[ShownTask], x: float, y: float, label: float) -> str:
    room = int((_WIDTH - label - 2) / _CHARACTER) - len(task["state"]) - 1
    name = _name(task)
    if len(name) > room:  # names differ at their ends
        name = f"{name[: room - room // 2 - 1]}…{name[-(room // 2) :]}"
    after = f", requires {', '.join(map(_name, required))}" if required else ""
    title = f"{_name(task)}: {task['state']}{after}"
    return (
        f'<a href="/ui/tasks/{task["taskId"]}"><title>{escape(title)}</title>'
        f'<circle class="{task["state"]}" cx="{x:.1f}" cy="{y:g}" r="4.5" fill="currentColor"/><text '
        f'x="{label:.1f}" y="{y + 4:g}" fill="currentColor">{task["state"]} {escape(name)}</text></a>'
    )


def _name(task: ShownTask) -> str:
    return str(task["name"] or task["taskId"])
