"""The picture of what happened to a task.

The tests parse it. How it looks was checked by eye in a browser.
"""

import re
from dataclasses import replace
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

import pytest
from lxml import etree

from legacy_queue.domain import transitions
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.history.picture import history_html, legend_html
from legacy_queue.services.inspection.task_history import Moment, task_history
from tests.domain.sample_tasks import (
    ALICE,
    CLAIM_TIMEOUT,
    DAY,
    HOUR,
    MINUTE,
    MS,
    NOW,
    SECOND,
    TASK_ID,
    ended,
    pending,
    running,
    shut_down,
    with_last_run,
)

ENDS = NOW + CLAIM_TIMEOUT


def answer(
    task: Task, *requests: Any, now: datetime = ENDS + HOUR, waits: Any = (), **more: Any
) -> dict[str, Any]:
    """An answer of inspectTask. ``more`` is passed to ``task_history``."""
    moments = [moment.to_wire() for moment in task_history(task, requests, **more)]
    return {"status": task.status(), "now": format_time(now), "waitsFor": waits, "story": moments}


def request(endpoint: str, time: datetime = NOW, **fields: Any) -> dict[str, Any]:
    return {
        "begun": format_time(time),
        "time": format_time(time),
        "status": 200,
        "endpoint": endpoint,
        "taskId": TASK_ID,
        "path": "/messages?visibilitytimeout=300",
        "runId": 0,
        **fields,
    }


def claim(endpoint: str, time: datetime, until: datetime) -> dict[str, Any]:
    claims = [{"taskId": TASK_ID, "runId": 0, "takenUntil": format_time(until)}]
    return request(endpoint, time, claims=claims)


def poll(time: datetime) -> dict[str, Any]:
    return request("azure.receive", time, messages=[{"taskId": TASK_ID, "runId": 0}])


class Picture:
    """A parsed picture. A vertical position is the number of a row plus the share of this row above it."""

    def __init__(self, wire: dict[str, Any], prefix: str = "moment-") -> None:
        self.root = etree.fromstring(history_html(wire, prefix))
        self.rows = self.root.findall("li")[1:]
        self.words = [etree.tostring(row[2], encoding="unicode", method="text") for row in self.rows]

    def row(self, words: str) -> int:
        """The row whose sentence has these words."""
        [found] = [index for index, each in enumerate(self.words) if words in each]
        return found

    def shapes(self, style: str) -> list[tuple[int, etree._Element]]:
        """The shapes of this style, each with its row."""
        return [
            (row, shape)
            for row, each in enumerate(self.rows)
            for shape in each[0]
            if shape.get("class") == style
        ]

    def lines(self, style: str) -> list[tuple[float, float]]:
        """Where the lines of this style begin and end, row by row."""
        return [(row + share(line, "y1"), row + share(line, "y2")) for row, line in self.shapes(style)]

    def line(self, style: str) -> tuple[float, float]:
        """Where the only line of this style begins and ends. It must have no gap."""
        parts = self.lines(style)
        assert all(before[1] == after[0] for before, after in pairwise(parts)), parts
        return parts[0][0], parts[-1][1]

    def bars(self) -> list[tuple[float, float, float, float]]:
        """The bar of a claimed run, row by row: where it begins and ends, and its width at both ends."""
        paths = [(row, bar[0].get("d", "")) for row, bar in self.shapes("running")]
        numbers = [(row, [float(each) for each in re.findall(r"-?[\d.]+", path)]) for row, path in paths]
        return [
            (row + top / 100, row + bottom / 100, wide, narrow)
            for row, (_, top, wide, narrow, bottom, _) in numbers
        ]

    def looks(self) -> list[str]:
        """The states of the message, in order."""
        styles = ("visible", "hidden", "held", "gone")
        shapes = sorted((row, style) for style in styles for row, _ in self.shapes(style))
        return [style for style, _ in groupby(style for _, style in shapes)]


def share(line: etree._Element, name: str) -> float:
    return float(line.get(name, "0%").rstrip("%")) / 100


def test_a_claim_narrows_to_its_taken_until_and_a_reclaim_makes_it_wide_again() -> None:
    again = ENDS + 10 * MINUTE
    requests = [claim("claimTask", NOW - MS, ENDS), claim("reclaimTask", NOW + CLAIM_TIMEOUT / 2, again)]
    expired = transitions.expire(with_last_run(running(), taken_until=again), again).task
    picture = Picture(answer(expired, *requests))
    before, after = picture.bars()
    assert before[1] == after[0] == picture.row("reclaimTask")
    assert before[2] > before[3] < after[2]
    assert after[1] == picture.row("run 0 ended as exception")
    assert after[3] == 0
    nobody_has_ended_it = Picture(answer(running(), *requests[:1], now=ENDS + HOUR))
    assert nobody_has_ended_it.bars()[-1][1] < nobody_has_ended_it.row("now")
    waits = [{"situation": "claimed", "sentence": "a claim", "until": format_time(ENDS)}]
    picture = Picture(answer(running(), *requests[:1], now=NOW + MINUTE, waits=waits))
    assert picture.row("now") < picture.row("the claim ends") == len(picture.rows) - 1
    assert picture.bars()[-1][1] == picture.line("held")[1] == picture.row("the claim ends")


def test_the_message_is_visible_then_hidden_by_a_poll_then_held_by_the_claim_then_deleted() -> None:
    task = running(priority="high")
    done = with_last_run(ended(task, at=NOW + HOUR), started=NOW + SECOND, taken_until=NOW + 2 * HOUR)
    picture = Picture(answer(done, poll(NOW + MS)))
    assert picture.looks() == ["visible", "hidden", "held", "gone"]
    visible, hidden, held = (picture.line(look) for look in ("visible", "hidden", "held"))
    assert visible[1] == hidden[0]
    assert hidden[1] == held[0]
    assert held[1] == picture.shapes("gone")[0][0]


def test_a_message_that_a_poll_hid_is_later_visible_again_until_now_or_the_deadline() -> None:
    waits = [{"situation": "deadline", "sentence": "-", "until": format_time(NOW + DAY)}]
    picture = Picture(answer(pending(), poll(NOW + MS), now=NOW + HOUR, waits=waits))
    hidden = picture.line("hidden")
    again = [(row + share(line, "y1"), row + share(line, "y2")) for row, line in picture.shapes("visible")][
        -1
    ]
    assert hidden[1] == again[0] == pytest.approx(picture.row("azure.receive") + 300 / 3600, abs=0.01)
    assert again[1] == picture.row("now")
    expired = transitions.expire(pending(), NOW + DAY).task
    picture = Picture(answer(expired, request("status", NOW + 2 * DAY)))
    assert picture.line("visible")[1] == picture.row("run 0 ended as exception")


def test_each_entry_is_a_row_with_its_whole_sentence_and_a_link_to_itself() -> None:
    move = Moment(format_time(NOW + MINUTE), "moved", "clock", {"movedTo": format_time(NOW + HOUR)})
    late = request("status", NOW + HOUR, clientId="a-client" * 20)
    wire = answer(running(), late, clock_moves=[move])
    picture = Picture(wire, "it-")
    told = picture.words[: len(wire["story"])]
    assert all(
        words.startswith(moment["what"][:30]) for words, moment in zip(told, wire["story"], strict=True)
    )
    assert "a-client" * 20 in "".join(picture.words)
    assert [row.get("id") for row in picture.rows] == [f"it-{i}" for i in range(len(picture.rows))]
    assert [row[1].get("href") for row in picture.rows] == [f"#{row.get('id')}" for row in picture.rows]
    assert picture.line("moved") == (picture.row("moved"), picture.row("a-client"))
    assert "59m later" in picture.words[picture.row("moved")]


def test_text_from_requests_is_never_html_and_the_picture_needs_no_inline_styles_or_scripts() -> None:
    reason = '<script>alert("1")</script>&\x00\x1b\ud800'
    wire = answer(running(), poll(NOW), request("claimTask", status=409, reason=reason))
    root = etree.fromstring(f"<div>{history_html(wire, 'it-')}{legend_html()}</div>".encode())
    assert {etree.QName(each).localname for each in root.iter()}.isdisjoint({"script", "style"})
    assert '<script>alert("1")</script>&\ufffd' in etree.tostring(root, encoding="unicode", method="text")
    assert not [name for each in root.iter() for name in each.attrib if re.match("style|on", str(name))]


def many_runs(count: int) -> Task:
    task = pending()
    for number in range(count - 1):
        at = NOW + number * MINUTE
        task = transitions.claim(task, number, ALICE, None, None, CLAIM_TIMEOUT, at).task
        task = transitions.rerun(ended(task, "failed", at + 30 * SECOND), at + 40 * SECOND).task
    return task


def test_the_lanes_of_50_runs_take_at_most_a_third_of_a_phones_width() -> None:
    for count, drawn in ((3, 3), (MAX_RUNS, 40)):  # the middle of a long history is left out
        picture = Picture(answer(many_runs(count), request("status", NOW + 20 * DAY)))
        assert {float(row[0].get("width", "")) <= 130 for row in picture.rows} == {True}
        assert len({row[0].get("width") for row in picture.rows}) == 1
        lanes = [float(line.get("x1", "")) for _, line in picture.shapes("pending")]
        assert lanes == sorted(lanes)
        assert len({*lanes}) == drawn
        assert any("later, 2030-01-22" in words for words in picture.words)
        skipped = {row for row, line in picture.shapes("gap") if line.get("x1") != "12"}
        assert len(skipped) == (count == MAX_RUNS), "a run that the gap hides has ended before the next one"


def test_of_a_long_history_the_first_20_and_last_100_entries_are_drawn_and_lanes_cross_the_gap() -> None:
    requests = [request("status", NOW + number * SECOND, code=f"c{number}") for number in range(400)]
    task = with_last_run(running(), started=NOW + 100 * SECOND)
    picture = Picture(answer(task, *requests))
    gap = picture.row("283 entries are not shown")
    assert (gap, len(picture.rows)) == (20, 122)
    lanes = [float(line.get("x1", "")) for row, line in picture.shapes("gap") if row == gap]
    assert len(lanes) == 2
    assert picture.shapes("gap")[-1][0] == picture.row("c399")
    assert len(etree.tostring(picture.root)) < 60_000
    done = shut_down(NOW + SECOND)  # so the lane of run 0 ends before the gap
    assert {float(line.get("x1", "")) for _, line in Picture(answer(done, *requests)).shapes("gap")} == {
        12,
        50,
    }


def test_if_the_storage_shows_the_message_in_another_state_the_picture_says_unknown() -> None:
    hidden = poll(NOW + MINUTE)
    for situation, style in (("received", "hidden"), ("visible", "unknown")):
        waits = [{"situation": situation, "sentence": "a sentence", "until": format_time(NOW + DAY)}]
        picture = Picture(answer(pending(), hidden, now=NOW + 2 * MINUTE, waits=waits))
        assert picture.line(style)[0] == picture.row("azure.receive")
    later = Picture(answer(pending(), hidden, now=NOW + HOUR, waits=waits))
    assert later.line("hidden")


def test_without_a_journal_the_picture_shows_a_message_only_while_a_claim_holds_it() -> None:
    assert Picture(answer(running(), sees_polls=False)).looks() == ["held"]


def test_a_task_that_was_canceled_before_its_first_run_shows_only_that() -> None:
    task = transitions.cancel(replace(pending(), runs=()), NOW + MINUTE).task
    picture = Picture(answer(task))
    assert [row for row, _ in picture.shapes("exception")] == [
        picture.row("run 0 ended as exception (canceled)")
    ]
    assert len(Picture(answer(replace(pending(), runs=()))).rows) == 2
