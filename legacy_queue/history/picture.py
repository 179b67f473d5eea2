"""What happened to a task: a list whose rows are the rows of a picture, in HTML and SVG.

Each entry of inspectTask's ``story`` is a row. It has the lanes of the message and of each run, the time and
the sentence. A row is as high as its sentence needs, so its shapes give heights in percent of the row. The
SVG has no script and no style, because the pages forbid both inline. It is hidden from screen readers: the
sentences say the same.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate, zip_longest
from math import ceil, inf
from typing import Any, NamedTuple

from legacy_queue.domain.times import duration_words, parse_time
from legacy_queue.history.words import moment_words, shortened

_MESSAGE = 12.0  # the middle of the message's lane
_RUNS = 26.0  # where the lanes of the runs begin
_MAX_WIDTH_OF_RUNS = 84  # of all their lanes
_PAUSE = 60  # seconds; a shorter pause between two entries is not mentioned

# Each has a contrast of 3:1 or more to white and to #0d1117. What differs in color differs in shape, too.
BLUE, GREEN, RED, AMBER, PURPLE = "#2f81f7", "#2e8b57", "#d1453b", "#b7791f", "#8b5cf6"
# what happens at the `until` of a wait
_ENDS = {
    "claimed": "the claim ends (takenUntil)",
    "received": "the message is visible again",
    "delayed": "the message is visible",
    "quarantined": "the first quarantine ends",
    "running-canceled": "the last claim of those tasks ends",
    "message-missing": "the latest time at which the sweeper offers the run again",
    "deadline": "the deadline ends the task",
}
# where the message is now, by the situation in which storage shows it
_SHOWN = {
    **dict.fromkeys(("visible", "behind"), "visible"),
    **dict.fromkeys(("received", "delayed"), "hidden"),
    "message-missing": "gone",
}
_OPEN = ("pending", "running", "visible", "hidden", "held")
_CROSS = ("M-3-3 3 3M-3 3 3-3", f'stroke="{RED}"')
_STYLES = {  # a shape, or "" for a line or an area; its attributes; and what the legend says of it
    "visible": ("", f'stroke="{GREEN}" stroke-width="7"', "visible: the next poll receives it"),
    "hidden": ("", f'stroke="{AMBER}" stroke-width="7" stroke-dasharray="1.5 2"', "hidden by a poll"),
    "held": ("", f'stroke="{BLUE}" stroke-width="2" stroke-dasharray="6 2"', "hidden by a claim"),
    "gone": (*_CROSS, "gone"),
    "unknown": ("", 'stroke-dasharray="1 4"', "not known"),
    "pending": ("", "", "pending"),
    "running": ("", f'fill="{BLUE}" stroke="none"', "claimed; the bar narrows until takenUntil"),
    "completed": ("M-4 5-1 8 4 1", f'stroke="{GREEN}" stroke-width="2"', "completed"),
    "failed": ("M-3 2H3V8H-3Z", f'stroke="{RED}"', "failed"),
    "exception": ("M-3 2 3 8M-3 8 3 2", f'stroke="{RED}" stroke-width="2"', "exception"),
    "change": ("M-4 0H4", "", "the task changed"),
    "answered": ("M-2 0A2 2 0 1 0 2 0 2 2 0 1 0-2 0Z", "", "a request"),
    "refused": (*_CROSS, "a refused request"),
    "unanswered": ("M0-4 4 3H-4Z", f'stroke="{RED}"', "a request without an answer, or answered by a 5xx"),
    "fault": ("M1-5-4 1H0L-1 5 4-1H0Z", f'stroke="{PURPLE}"', "a request that met a fault"),
    "event": ("M0-3 3 0 0 3-3 0Z", f'stroke="{GREEN}"', "a published event"),
    "clock": ("M-4 0A4 4 0 1 0 4 0 4 4 0 1 0-4 0M0-3V0H3", f'stroke="{AMBER}"', "the clock was moved"),
    "moved": ("", f'stroke="{AMBER}"', ""),
    "guide": ("", 'stroke-width=".5"', ""),
    "gap": ("", 'stroke-dasharray="1 4"', ""),
    "rule": ("", 'stroke-dasharray="1 3"', ""),
}
_LANES = {  # the shapes of each
    "Lane msg: the message": ("visible", "hidden", "held", "gone", "unknown"),
    "Numbered lanes: the runs": ("pending", "running", "completed", "failed", "exception"),
    "Right lane: what happened": ("change", "answered", "refused", "unanswered", "fault", "event", "clock"),
}
# the style that a report needs; the pages have it in their style sheet
STYLE = """.history { list-style: none; margin: 0; padding: 0 0 10px }
.history li { display: grid; grid-template-columns: auto 5em 1fr; column-gap: 8px }
.history li, .legend li { font: 14px/20px system-ui, sans-serif }
.history li > svg { height: 0; min-height: 100%; position: relative; top: 10px; overflow: visible }
.history svg, .legend svg { fill: none; stroke: currentColor; stroke-width: 1.5px }
.history a { color: inherit; text-decoration: none }
.history line { shape-rendering: crispEdges }
.history small { display: block }
.legend { columns: 16rem 3 } .legend p { margin: 0; break-after: avoid }
.legend ul { list-style: none; padding: 0 }
.legend svg { vertical-align: middle; margin-right: 8px }
"""


class _Part(NamedTuple):
    """A part of the lane at ``x``: from an entry to the next part, or to ``until`` if that comes first."""

    x: float
    moment: int
    style: str
    until: str = ""
    shrinks: bool = False


class _Row(NamedTuple):
    """A row of the list. ``kind`` is that of an entry, or "now", or "coming" if it is expected."""

    time: str
    words: str
    kind: str


def history_html(answer: Mapping[str, Any], prefix: str = "moment-") -> str:
    """The list for an answer of inspectTask, with the id ``<prefix><index>`` for each row.

    It needs ``STYLE``. ``legend_html`` explains the shapes.
    """
    return "\n".join(_Picture(answer, prefix).drawn())


def legend_html() -> str:
    """The legend: for each lane, a list of its shapes and what they mean."""
    html = ""
    for lane, styles in _LANES.items():
        items = (f"<li>{_sample(style)}{_STYLES[style][2]}</li>" for style in styles)
        html += f"<p>{lane}</p><ul>{''.join(items)}</ul>"
    return f'<div class="legend">{html}</div>'


class _Picture:
    def __init__(self, answer: Mapping[str, Any], prefix: str) -> None:
        self._status = answer["status"]
        self._story = shortened(answer["story"])
        self._waits = answer["waitsFor"]
        self._now = answer["now"]
        self._prefix = prefix
        self._runs = range(len(self._status["runs"]))
        self._pitch = min(16.0, _MAX_WIDTH_OF_RUNS / max(1, len(self._runs)))
        self._right = _RUNS + self._pitch * len(self._runs) + 8  # the middle of the right lane
        self._rows = [_Row(moment["time"], moment_words(moment), moment["kind"]) for moment in self._story]
        if self._status["state"] in ("unscheduled", "pending", "running"):
            self._rows.append(_Row(self._now, f"now: the task is {self._status['state']}", "now"))
            coming = [
                _Row(wait["until"], _ENDS.get(wait["situation"], wait["sentence"]), "coming")
                for wait in self._waits
                if wait.get("until", "") > self._now
            ]
            self._rows += sorted(coming)
        self._times = [*accumulate((_seconds(row.time) for row in self._rows), max)]
        self._shapes: list[list[str]] = [[] for _ in self._rows]

    def drawn(self) -> Iterator[str]:
        parts = [*self._parts()]
        for part, after in zip_longest(parts, parts[1:]):
            self._draw(part, after.moment if after and after.x == part.x else None)
        for index, moment in enumerate(self._story):
            if "movedTo" in moment:
                self._line("moved", self._right, index, self._y(moment["movedTo"]))
        task_id = self._status["taskId"]
        yield f'<ol class="history" aria-label="What happened to task {task_id}">'
        shown = self._runs if self._pitch == 16 else self._runs[10::10]  # else they would touch
        names = [
            _name(_MESSAGE - 9, "msg"),
            *(_name(self._lane(run_id) - 3, str(run_id)) for run_id in shown),
        ]
        date = self._rows[0].time[:10]
        yield f'<li class="head">{self._svg(names)}<span></span><span>{date} UTC</span></li>'
        for index, (row, after) in enumerate(zip_longest(self._rows, self._rows[1:])):
            yield self._row(index, row, _later(row.time, after.time) if after else "")
        yield "</ol>"

    def _row(self, index: int, row: _Row, later: str) -> str:
        name, time, words = f"{self._prefix}{index}", row.time[11:19], _text(_short(row.words, row.time[:10]))
        after = f"<small>{later}</small>" if later else ""
        self._shapes[index] += self._mark(index)
        return (
            f'<li id="{name}" class="{row.kind}">{self._svg(self._shapes[index])}'
            f'<a href="#{name}" title="{row.time}">{time}</a><span>{words}{after}</span></li>'
        )

    def _svg(self, shapes: Sequence[str]) -> str:
        return f'<svg width="{self._right + 6:g}" aria-hidden="true">{"".join(shapes)}</svg>'

    def _mark(self, row: int) -> Iterator[str]:
        """The shape of an entry in the right lane, and a thin line to the lane that it is about."""
        if row >= len(self._story) or self._story[row]["kind"] == "gap":
            yield _path("rule", 2, f"M0 0H{self._right:g}")
            return
        moment = self._story[row]
        lane = self._lane(moment["runId"]) if "runId" in moment else self._right
        lane = _MESSAGE if moment.get("endpoint", "").startswith("azure.") else lane
        if lane < self._right:
            yield _path("guide", lane, f"M0 0H{self._right - lane:g}")
        yield _path(_kind(moment), self._right)

    def _parts(self) -> Iterator[_Part]:
        """The parts of all lanes, in order. If storage does not show the message where the last entry left
        it, nobody saw what became of it: then its last part is "unknown".
        """
        parts = sorted(self._begun())
        shown = [_SHOWN[wait["situation"]] for wait in self._waits if wait["situation"] in _SHOWN]
        of_message = [part for part in parts if part.x == _MESSAGE]
        for last in of_message[-1:] if shown else ():
            has_ended = bool(last.until) and last.until <= self._now
            if ("visible" if has_ended else last.style) != shown[0]:
                parts[parts.index(last)] = last._replace(style="unknown", until="")
        for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
            is_open = before and before.x == part.x and before.style in _OPEN
            # a run whose next part is "pending" did not exist before
            was_open = after and after.x == part.x and (part.x == _MESSAGE or after.style != "pending")
            if part.style != "gap" or is_open or was_open:
                yield part

    def _begun(self) -> Iterator[_Part]:
        """The parts that begin at each entry."""
        asked = [moment for moment in self._story if "endpoint" in moment and "takenUntil" in moment]
        claims = {each["runId"]: each["takenUntil"] for each in asked if each["endpoint"] != "reclaimTask"}
        for index, moment in enumerate(self._story):
            until = moment.get("takenUntil", "")
            if moment["kind"] == "gap":
                yield from (_Part(lane, index, "gap") for lane in (_MESSAGE, *map(self._lane, self._runs)))
            elif moment.get("state") == "running":
                # the entry has the takenUntil of the last reclaim; only the journal has the claim's own
                run_id = moment["runId"]
                first = claims.get(run_id, until)
                yield _Part(self._lane(run_id), index, "running", first, run_id in claims)
            elif "state" in moment:
                yield _Part(self._lane(moment["runId"]), index, moment["state"])
            elif moment.get("endpoint") == "reclaimTask" and until:
                yield _Part(self._lane(moment["runId"]), index, "running", until, shrinks=True)
            if "message" in moment:
                until = moment.get("hiddenUntil", until)
                yield _Part(_MESSAGE, index, moment["message"], until)

    def _draw(self, part: _Part, after: int | None) -> None:
        """Draw the part. If it ends by itself, the message is visible again after it."""
        until = self._y(part.until) if part.until else inf
        now = min(len(self._story), len(self._rows) - 1)
        end = after if after is not None else max(now, until) if part.until else now
        if part.style == "gap" and part.x not in (_MESSAGE, self._lane(self._runs[-1])):
            end = min(end, part.moment + 1)  # a run ends before the next one begins
        if part.x == _MESSAGE:
            end = min(end, self._y(self._status["deadline"]))  # no message outlives it
            if until < end and any(moment.get("message") == "visible" for moment in self._story):
                self._line("visible", _MESSAGE, until, end)
        bottom = min(until, end)
        if _STYLES[part.style][0]:
            self._shapes[part.moment].append(_path(part.style, part.x))
        elif part.style == "running":
            self._bar(part, bottom)
        else:
            self._line(part.style, part.x, part.moment, bottom)

    def _line(self, style: str, x: float, top: float, bottom: float) -> None:
        for row, begin, end in _rows_between(top, bottom):
            y1 = f' y1="{begin:.0%}"' if begin else ""
            self._shapes[row].append(
                f'<line class="{style}" x1="{x:g}" x2="{x:g}"{y1} y2="{end:.0%}" {_STYLES[style][1]}/>'
            )

    def _bar(self, part: _Part, bottom: float) -> None:
        """Draw a claim as a bar. Its width is the share of the claim that is left."""
        begin, end = self._times[part.moment], _seconds(part.until)

        def width(row: int, share: float) -> float:
            following = self._times[min(row + 1, len(self._times) - 1)]
            time = self._times[row] + share * (following - self._times[row])
            left = (end - time) / max(end - begin, 0.001)
            return self._pitch * 0.4 * (min(1, max(0, left)) if part.shrinks else 1)

        for row, top, until in _rows_between(part.moment, bottom):
            wide, narrow = width(row, top), width(row, until)
            path = f"M{-wide:.1f} {100 * top:.0f}H{wide:.1f}L{narrow:.1f} {100 * until:.0f}H{-narrow:.1f}Z"
            self._shapes[row].append(
                f'<svg class="running" x="{part.x - 8:g}" width="16" height="100%" viewBox="-8 0 16 100" '
                f'preserveAspectRatio="none"><path d="{path}" {_STYLES["running"][1]}/></svg>'
            )

    def _lane(self, run_id: int) -> float:
        """The middle of the lane of a run."""
        return _RUNS + self._pitch * (run_id + 0.5)

    def _y(self, time: str) -> float:
        """The place of a time: the number of its row, plus the share of the row that is above it."""
        seconds = _seconds(time)
        after = bisect_left(self._times, seconds)
        if after in (0, len(self._times)):
            return len(self._times) - 1 if after else 0
        return after - (self._times[after] - seconds) / (self._times[after] - self._times[after - 1])


def _seconds(time: str) -> float:
    return parse_time(time).timestamp()


def _rows_between(top: float, bottom: float) -> Iterator[tuple[int, float, float]]:
    """Each row between two places, and where these begin and end in it, from 0 to 1."""
    for row in range(int(top), ceil(bottom)):
        yield row, max(top - row, 0.0), min(bottom - row, 1.0)


def _later(time: str, after: str) -> str:
    """How much later the next row is, and its date if that differs."""
    pause = _seconds(after) - _seconds(time)
    words = [f"{duration_words(pause)} later"] if pause >= _PAUSE else []
    words += [after[:10]] if after[:10] != time[:10] else []
    return ", ".join(words)


def _kind(moment: Mapping[str, Any]) -> str:
    """The style of an entry: its kind, or how the request was answered."""
    status = moment.get("status", 0)
    answer = "answered" if 0 < status < 400 else "refused" if 400 <= status < 500 else "unanswered"
    return answer if moment["kind"] == "request" else str(moment["kind"])


def _short(words: str, date: str) -> str:
    """The sentence, in which a time of that date is shown as a time of day."""
    return re.sub(rf"\b{date}T(\d\d:\d\d:\d\d)\.\d+Z", r"\1", words)


def _text(words: str) -> str:
    return escape("".join(each if each.isprintable() else "\ufffd" for each in words))


def _name(x: float, words: str) -> str:
    return f'<text x="{x:g}" y="4" fill="currentColor" stroke="none" font-size="10">{words}</text>'


def _path(style: str, x: float, path: str = "") -> str:
    shape, attributes, _ = _STYLES[style]
    return f'<path class="{style}" d="{shape or path}" transform="translate({x:g})" {attributes}/>'


def _sample(style: str) -> str:
    """A shape for the legend, in the middle of 16 by 20 pixels."""
    shape, attributes, _ = _STYLES[style]
    area = "M-6-8H6L1 8H-1Z" if style == "running" else "M0-8V8"
    y = 5 if style in ("completed", "failed", "exception") else 10
    return (
        '<svg width="16" height="20" aria-hidden="true">'
        f'<path d="{shape or area}" transform="translate(8 {y})" {attributes}/></svg>'
    )
