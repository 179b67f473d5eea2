"""The picture of a task group's dependencies. Each row of it belongs to a row of the table of tasks."""

import re
from typing import Any

from lxml import etree

from legacy_queue.domain.states import RESOLVED, UNRESOLVED
from legacy_queue.http.page.group_picture import group_rows


def task(task_id: str, *dependencies: str, name: str = "", state: str = "pending") -> dict[str, Any]:
    return {"taskId": task_id, "name": name, "state": state, "dependencies": dependencies}


class Graph:
    """The picture of a group with these tasks."""

    def __init__(self, *tasks: dict[str, Any]) -> None:
        self.rows = [*group_rows(tasks)]
        self.order = [row.task["taskId"] for row in self.rows]
        self.pictures = [etree.fromstring(row.svg) for row in self.rows]
        self.shapes = [picture[1] for picture in self.pictures]

    def x(self, task_id: str) -> float:
        """The horizontal position of a task's shape."""
        place = self.shapes[self.order.index(task_id)].get("transform", "")
        return float(re.findall(r"[\d.]+", place)[0])

    def lines(self, task_id: str) -> list[tuple[float, str]]:
        """The lines in a task's row: the horizontal position where each begins, and the rest of its path."""
        path = self.pictures[self.order.index(task_id)][0].get("d", "")
        return [(float(x), rest) for x, rest in re.findall(r"M([\d.]+)([^M]*)", path)]


def test_a_task_is_to_the_right_of_and_below_its_dependencies_and_lines_connect_them() -> None:
    graph = Graph(task("c", "a", "b"), task("b", "a", "b", "elsewhere"), task("a"), task("d"))
    assert graph.order == ["a", "b", "c", "d"]
    assert graph.x("a") < graph.x("b") < graph.x("c")
    assert graph.lines("a") == [(graph.x("a"), " 17V999")]
    passing, to_b, from_b = sorted(graph.lines("b"))
    assert passing[0] == to_b[0] == graph.x("a")
    assert (passing[1], from_b) == ("-99V4q0 6 6 6H17", (graph.x("b"), " 17V999"))
    assert {x for x, _ in graph.lines("c")} == {graph.x("a"), graph.x("b")}
    assert graph.lines("d") == []
    assert [row.requires for row in graph.rows] == [[], ["a"], ["a", "b"], []]
    assert Graph().rows == []


def test_a_chain_is_a_straight_line() -> None:
    chain = [task(str(number), *([str(number - 1)] if number else [])) for number in range(200)]
    graph = Graph(*reversed(chain))
    assert graph.order == [str(number) for number in range(200)]
    assert {graph.x(task_id) for task_id in graph.order} == {8}


def test_parallel_lines_have_lanes_of_their_own_and_leave_room_for_the_names() -> None:
    for count in (28, 198):
        many = [task(str(number), "root") for number in range(count)]
        graph = Graph(task("root"), *many, task("end", *(each["taskId"] for each in many)))
        assert len({graph.x(task_id) for task_id in graph.order}) >= 30
        assert max(float(picture.get("width", "")) for picture in graph.pictures) <= 136
    assert sum(len(row.svg) for row in graph.rows) < 70_000


def test_each_state_has_a_shape_and_tasks_without_dependencies_keep_their_order() -> None:
    tasks = [task(state, state=state) for state in (*UNRESOLVED, *RESOLVED)]
    graph = Graph(*tasks)
    assert graph.order == [each["taskId"] for each in tasks]
    assert [shape.get("class") for shape in graph.shapes] == graph.order
    assert len({etree.tostring(shape[0]) for shape in graph.shapes}) == 6


def test_each_row_has_the_names_of_the_tasks_that_it_requires() -> None:
    many = [task(str(number)) for number in range(100)]
    *_, all_of_them = Graph(*many, task("end", *(each["taskId"] for each in many))).rows
    assert all_of_them.requires[4:] == ["4", "and 95 more"]
    rows = Graph(task("a", name="<b>"), task("b", "a")).rows
    assert rows[1].requires == ["<b>"]
