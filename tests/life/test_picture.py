"""The picture of a task's life, parsed again. What it looks like, eyes have seen in a browser."""

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from lxml import etree

from legacy_queue.domain import transitions
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.life.picture import life_html, life_svg
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

SVG = "{http://www.w3.org/2000/svg}"
WIDEST = 7.25  # of an ASCII character
ENDS = NOW + CLAIM_TIMEOUT


def answer(
    task: Task, *requests: Any, now: datetime = ENDS + HOUR, waits: Any = (), **more: Any
) -> dict[str, Any]:
    """As inspectTask answers. ``more`` is for the story."""
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
    """What is in a picture."""

    def __init__(self, wire: dict[str, Any], prefix: str = "moment-") -> None:
        self.root = etree.fromstring(life_svg(wire, prefix))
        links = self.root.findall(f"{SVG}a")
        self.rows = [link for link in links if link.get("tabindex") is None]
        self.parts = {title_of(link): link for link in links if link not in self.rows}
        self.labels = [text for text in self.root.iter(f"{SVG}text") if text.get("font-size") == "12"]
        self.height = float(self.root.get("viewBox", "").split()[3])

    def part(self, begin: str) -> tuple[float, float]:
        """Where the part of a lane, whose title begins so, begins and ends."""
        [path] = [link[-1] for title, link in self.parts.items() if title.startswith(begin)]
        y = float(path.get("transform", "").split()[1].rstrip(")"))
        drawn = re.findall(r"V([\d.]+)| ([\d.]+)(?=[LZ])", path.get("d", ""))
        return y, y + max(float(a or b) for a, b in drawn)

    def y(self, label: str) -> float:
        """Where the row is whose label has these words."""
        [found] = [text for text in self.labels if label in (text.text or "")]
        return float(found.get("y", "")) - 4


def title_of(link: etree._Element) -> str:
    return link.findtext(f"{SVG}title") or ""


def looks(picture: Picture) -> list[str]:
    """What the message was, in order."""
    return [title.split()[1].rstrip(",") for title in picture.parts if title.startswith("message")]


def test_a_claim_ends_at_its_taken_until_and_a_reclaim_begins_anew() -> None:
    again = ENDS + 10 * MINUTE
    requests = [claim("claimTask", NOW - MS, ENDS), claim("reclaimTask", NOW + CLAIM_TIMEOUT / 2, again)]
    expired = transitions.expire(with_last_run(running(), taken_until=again), again).task
    picture = Picture(answer(expired, *requests))
    assert picture.part("run 0 is running")[1] == pytest.approx(picture.y("reclaimTask"))
    assert picture.part("run 0 is taken until")[1] == pytest.approx(picture.y("run 0 is exception"), abs=0.1)
    nobody_has_ended_it = Picture(answer(running(), *requests[:1], now=ENDS + HOUR))
    assert nobody_has_ended_it.part("run 0 is running")[1] < nobody_has_ended_it.y("now")
    waits = [{"situation": "claimed", "sentence": "a claim", "until": format_time(ENDS)}]
    picture = Picture(answer(running(), *requests[:1], now=NOW + MINUTE, waits=waits))
    assert picture.y("now") < picture.y("takenUntil") < picture.height
    for lane in ("run 0 is running", "message held"):
        assert picture.part(lane)[1] == pytest.approx(picture.y("takenUntil"), abs=0.1)


def test_the_message_is_visible_hidden_by_a_poll_held_by_the_claim_and_deleted() -> None:
    task = running(priority="high")
    done = with_last_run(ended(task, at=NOW + HOUR), started=NOW + SECOND, taken_until=NOW + 2 * HOUR)
    picture = Picture(answer(done, poll(NOW + MS)))
    assert looks(picture) == ["visible", "hidden", "held", "gone"]
    assert all("queue of priority high" in title for title in picture.parts if title.startswith("message"))
    visible, hidden, held = (picture.part(f"message {look}") for look in ("visible", "hidden", "held"))
    assert visible[1] == hidden[0]
    assert hidden[1] == pytest.approx(held[0])


def test_a_message_that_a_poll_has_hidden_is_visible_after_that_until_now_or_the_deadline() -> None:
    waits = [{"situation": "deadline", "sentence": "-", "until": format_time(NOW + DAY)}]
    picture = Picture(answer(pending(), poll(NOW + MS), now=NOW + HOUR, waits=waits))
    begin, end = picture.part("message visible from")
    assert picture.part("message hidden")[1] == pytest.approx(begin, abs=0.1)
    assert end == pytest.approx(picture.y("now"), abs=0.1)
    expired = transitions.expire(pending(), NOW + DAY).task
    picture = Picture(answer(expired, request("status", NOW + 2 * DAY)))
    assert picture.part("message visible")[1] == pytest.approx(picture.y("run 0 is exception"), abs=0.1)


def test_each_moment_is_a_link_to_its_item_in_the_list_with_its_whole_sentence() -> None:
    move = Moment(format_time(NOW + MINUTE), "moved", "clock", {"movedTo": format_time(NOW + HOUR)})
    late = request("status", NOW + HOUR, clientId="a-client" * 20)
    wire = answer(running(), late, clock_moves=[move])
    picture = Picture(wire, "it-")
    said = [f"{moment['time']} {moment['what']}" for moment in wire["story"]]
    assert [title_of(row) for row in picture.rows] == said
    root = etree.fromstring(f"<p>{life_html(wire, 'it-')}{life_html(wire, 'b-')}</p>")
    ids = [item.get("id") for item in root.iter("li")]
    assert ids[: len(said)] == [f"it-{i}" for i in range(len(said))]
    assert [row.get("href") for row in picture.rows] == [f"#{name}" for name in ids[: len(said)]]
    assert {link.get("href") for link in root.iter(f"{SVG}a")} == {f"#{name}" for name in ids}


def test_what_others_have_named_is_text_and_a_page_may_forbid_styles_and_scripts() -> None:
    reason = '<script>alert("1")</script>&\x00\x1b\ud800'
    wire = answer(running(), poll(NOW), request("claimTask", status=409, reason=reason))
    root = etree.fromstring(f"<p>{life_html(wire, 'it-')}</p>".encode())
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


def assert_readable(picture: Picture) -> None:
    """No label is cut off, or on a lane, or on another label."""
    places = sorted((float(text.get("y", "")), text) for text in picture.labels)
    paths = [path.get("transform", "") for path in picture.root.iter(f"{SVG}path")]
    lanes = max((float(x) for x in re.findall(r"translate\(([\d.]+) ", " ".join(paths))), default=0)
    for (y, text), (next_y, _) in zip(places, [*places[1:], (picture.height, None)], strict=True):
        x = float(text.get("x", ""))
        words = text.text or ""
        width = sum(WIDEST if each.isascii() or each == "…" else 2 * WIDEST for each in words)
        assert lanes + 2 < x
        assert x + width <= 401, words
        assert next_y - y >= 14


def test_50_runs_and_long_pauses_leave_every_label_readable() -> None:
    task = many_runs(MAX_RUNS)
    slow = request("status", NOW + 20 * DAY, reason="x" * 500, status=404)
    wide = request("status", NOW + 20 * DAY + MINUTE, reason="漢" * 100, status=404)
    for picture in (Picture(answer(task, slow, wide)), Picture(answer(many_runs(3), slow, wide))):
        assert_readable(picture)
        assert "later" in etree.tostring(picture.root, encoding="unicode")


def test_of_a_long_story_the_first_20_and_the_last_130_moments_are_drawn_and_the_lanes_go_on() -> None:
    requests = [request("status", NOW + number * SECOND, code=f"c{number}") for number in range(400)]
    task = with_last_run(running(), started=NOW + 100 * SECOND)
    picture = Picture(answer(task, *requests))
    drawn = [int(row.get("href", "").rpartition("-")[2]) for row in picture.rows]
    assert drawn == [*range(20), *range(21, 151)]
    begin, end = picture.part("253 entries are not shown")
    assert begin == pytest.approx(picture.y("not shown"))
    assert end > picture.y("c399")
    assert picture.height < 20 * 160
    assert_readable(picture)
    done = shut_down(NOW + SECOND)
    gaps = [title for title in Picture(answer(done, *requests)).parts if "not shown" in title]
    assert len(gaps) == 1, "of what goes on behind it, not of run 0"


def test_a_message_that_storage_shows_in_another_state_was_not_seen() -> None:
    hidden = poll(NOW + MINUTE)
    unseen = "what its message has become was not seen"
    for situation, begin in (("received", "message hidden"), ("visible", unseen)):
        waits = [{"situation": situation, "sentence": "a sentence", "until": format_time(NOW + DAY)}]
        picture = Picture(answer(pending(), hidden, now=NOW + 2 * MINUTE, waits=waits))
        assert picture.part(begin)
    later = Picture(answer(pending(), hidden, now=NOW + HOUR, waits=waits))
    assert later.part("message hidden")


def test_without_a_journal_nothing_is_said_of_a_message_that_no_claim_holds() -> None:
    assert {*looks(Picture(answer(running(), sees_polls=False)))} == {"held"}


def test_a_task_that_was_canceled_before_its_first_run_has_only_an_end() -> None:
    task = transitions.cancel(replace(pending(), runs=()), NOW + MINUTE).task
    assert [*Picture(answer(task)).parts] == ["run 0 is exception (canceled)"]
    assert len(Picture(answer(replace(pending(), runs=()))).rows) == 1
