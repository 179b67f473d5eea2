"""The dependencies of a task group as a picture."""

import re
from itertools import pairwise
from typing import Any

from lxml import etree

from legacy_queue.http.page.group_picture import group_svg


def task(task_id: str, *dependencies: str, name: str = "", state: str = "pending") -> dict[str, Any]:
    return {"taskId": task_id, "name": name, "state": state, "dependencies": dependencies}


def drawn(*tasks: dict[str, Any]) -> tuple[dict[str, tuple[float, float]], int]:
    """The place of each task's node, by its taskId, and the number of lines."""
    picture = etree.fromstring(group_svg(tasks))
    nodes = {}
    for link in picture.iterfind("a"):
        [node] = link.iterfind("circle")
        place = float(node.get("cx", "")), float(node.get("cy", ""))
        nodes[link.get("href", "").removeprefix("/ui/tasks/")] = place
    return nodes, len(picture.findall("g/path"))


def test_a_task_is_right_of_and_below_each_of_its_dependencies() -> None:
    nodes, lines = drawn(task("c", "a", "b"), task("b", "a", "b", "elsewhere"), task("a"), task("d"))
    assert (len(nodes), lines) == (4, 3)
    assert drawn() == ({}, 0)
    for required, dependent in (("a", "b"), ("a", "c"), ("b", "c")):
        assert nodes[required] < nodes[dependent]
        assert nodes[required][1] < nodes[dependent][1]


def test_a_chain_of_200_tasks_fits_into_the_picture() -> None:
    chain = [task(str(number), *([str(number - 1)] if number else [])) for number in range(200)]
    nodes, lines = drawn(*reversed(chain))
    assert lines == 199
    assert max(x for x, _ in nodes.values()) < 200
    heights = sorted(y for _, y in nodes.values())
    assert {after - before for before, after in pairwise(heights)} == {22}


def test_a_name_is_text_and_is_cut_where_it_has_no_room() -> None:
    name = "<script>&" + "n" * 100
    picture = etree.fromstring(group_svg([task("a", name=name, state="completed"), task("b", "a")]))
    label, other = picture.findall("a/text")
    assert re.fullmatch("completed <script>&n+…n+", str(label.text))
    assert float(label.get("x", "")) + len(str(label.text)) * 7.25 <= 400
    assert other.text == "pending b"
    titles = [title.text for title in picture.findall("a/title")]
    assert titles == [f"{name}: completed", f"b: pending, requires {name}"]
