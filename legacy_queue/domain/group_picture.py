"""The dependencies of a group's tasks as a picture: a row for each task, those it depends on above it."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

_ROW = 22  # height of a row, in units of the picture
_LEFT = 12
_WIDTH = 400
_MAX_STEP = 18  # between two levels
_MAX_INDENT = 130  # of all levels
_CHARACTER = 6.4  # width of the labels' characters, at most


def group_svg(tasks: Sequence[Mapping[str, Any]]) -> str:
    """SVG of the tasks: each has ``taskId``, ``name``, ``state`` and its ``dependencies``.

    A task is right of and below all of its dependencies in the group. Its name links to its page.
    """
    known = {task["taskId"]: task for task in tasks}
    levels: dict[str, int] = {}
    for start in known:  # without recursion: a chain may be as long as the group
        ahead = [start]
        while ahead:
            task_id = ahead[-1]
            required = [each for each in known[task_id]["dependencies"] if each in known and each != task_id]
            missing = [each for each in required if each not in levels]
            if missing and task_id not in levels:
                ahead += missing
            else:
                levels.setdefault(task_id, 1 + max((levels[each] for each in required), default=-1))
                ahead.pop()
    rows = sorted(known, key=lambda task_id: levels[task_id])
    step = min(_MAX_STEP, _MAX_INDENT / max(1, *levels.values(), 0))
    places = {
        task_id: (_LEFT + step * levels[task_id], _ROW * (number + 0.5))
        for number, task_id in enumerate(rows)
    }
    lines = [
        _edge(places[required], places[task_id])
        for task_id in rows
        for required in known[task_id]["dependencies"]
        if required in places and required != task_id
    ]
    nodes = [_node(known[task_id], *places[task_id]) for task_id in rows]
    label = f"{len(rows)} tasks and {len(lines)} dependencies among them"
    return (
        f'<svg class="picture" viewBox="0 0 {_WIDTH} {_ROW * len(rows)}" width="100%" role="group" '
        f'aria-label="{label}" font-size="12"><g fill="none" stroke="currentColor" stroke-opacity="0.5">'
        f"{''.join(lines)}</g>{''.join(nodes)}</svg>"
    )


def _edge(begin: tuple[float, float], end: tuple[float, float]) -> str:
    """Down from a dependency, then to the right into the task."""
    (x, y), (to_x, to_y) = begin, end
    return f'<path d="M{x:g} {y:g}V{to_y - 6:g}Q{x:g} {to_y:g} {x + 6:g} {to_y:g}H{to_x:g}"/>'


def _node(task: Mapping[str, Any], x: float, y: float) -> str:
    space = int((_WIDTH - x - 10) / _CHARACTER) - len(task["state"]) - 2
    name = task["name"] or task["taskId"]
    short = name if len(name) <= space else name[: space - 1] + "…"
    return (
        f"<a href={quoteattr('/ui/tasks/' + task['taskId'])}><title>{escape(name)}: {task['state']}</title>"
        f'<circle class="{task["state"]}" cx="{x:g}" cy="{y:g}" r="5" fill="currentColor"/>'
        f'<text x="{x + 10:g}" y="{y + 4:g}" fill="currentColor">{escape(short)}, {task["state"]}</text></a>'
    )
