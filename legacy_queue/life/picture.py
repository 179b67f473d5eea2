"""A task's life as a picture: its story as a sequence chart in SVG, in which time goes down.

It says nothing that the story does not say, has no style and no script, and escapes all text.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from html import escape
from itertools import accumulate, pairwise, zip_longest
from math import inf, log10
from typing import Any, NamedTuple

from legacy_queue.domain.times import duration_words, parse_time
from legacy_queue.life.words import moment_words, shortened

_WIDTH = 400
_CHARACTER = 7.25  # the width of monospace text of 12 px
_MESSAGE = 12.0  # the middle of the lane of the message
_OF_LANE = ' tabindex="-1"'  # the keyboard gets to the moment by its row
_PAUSE = 60  # seconds between two moments, from which on it is written

# each has a contrast of 3:1 or more to white and to #0d1117; what differs in color differs in shape, too
BLUE, GREEN, RED, AMBER, PURPLE = "#2f81f7", "#2e8b57", "#d1453b", "#b7791f", "#8b5cf6"
# what happens at the end of a wait
_ENDS = {
    "claimed": "takenUntil",
    "received": "its message is visible",
    "delayed": "its message is visible",
    "quarantined": "the quarantine ends",
    "message-missing": "the sweeper has looked",
    "deadline": "deadline",
}
# what storage shows of the message now
_SHOWN = {
    **dict.fromkeys(("visible", "behind"), "visible"),
    **dict.fromkeys(("received", "delayed"), "hidden"),
    "message-missing": "gone",
}
LEGEND = (
    "The lane msg is the message: a full bar while it is visible, a striped bar while a poll hides it, a "
    "dashed line while a claim holds it, a cross when it is gone, dots where it was not seen. Each numbered "
    "lane is a run: a line while it is pending, a bar while it is claimed, which narrows to its takenUntil, "
    "then ✓ completed, □ failed or ✗ exception. In the right lane: ○ a request, △ one without an answer or "
    "with a 5xx, ✗ a refused one, ◇ an event, ϟ a fault, and a clock where the clock was moved."
)
_OPEN = ("pending", "running", "visible", "hidden", "held")
_CROSS = ("M-3-3 3 3M-3 3 3-3", f'stroke="{RED}"')
_STYLES = {  # a shape, "" for a line or an area, and its attributes
    "change": ("M-4 0H4", 'stroke="currentColor"'),
    "answered": ("M-2 0A2 2 0 1 0 2 0 2 2 0 1 0-2 0Z", 'stroke="currentColor"'),
    "refused": _CROSS,
    "unanswered": ("M0-4 4 3H-4Z", f'stroke="{RED}"'),  # or answered by a 5xx
    "fault": ("M1-5-4 1H0L-1 5 4-1H0Z", f'stroke="{PURPLE}"'),
    "event": ("M0-3 3 0 0 3-3 0Z", f'stroke="{GREEN}"'),
    "clock": ("M-4 0A4 4 0 1 0 4 0 4 4 0 1 0-4 0M0-3V0H3", f'stroke="{AMBER}"'),
    "moved": ("", f'stroke="{AMBER}"'),
    "guide": ("", 'stroke="currentColor" stroke-width=".5"'),
    "unknown": ("", 'stroke="currentColor" stroke-dasharray="1 4"'),
    "gap": ("", 'stroke="currentColor" stroke-dasharray="1 4"'),
    "no moment": ("", 'stroke="currentColor" stroke-dasharray="1 3"'),
    "pending": ("", 'stroke="currentColor"'),
    "running": ("", f'fill="{BLUE}"'),
    "completed": ("M-4 6-1 9 4 2", f'stroke="{GREEN}"'),
    "failed": ("M-3 3H3V9H-3Z", f'stroke="{RED}"'),
    "exception": ("M-3 3 3 9M-3 9 3 3", f'stroke="{RED}"'),
    "visible": ("", f'stroke="{GREEN}" stroke-width="7"'),
    "hidden": ("", f'stroke="{AMBER}" stroke-width="7" stroke-dasharray="1.5 2"'),
    "held": ("", f'stroke="{BLUE}" stroke-width="2" stroke-dasharray="6 2"'),
    "gone": _CROSS,
}


class _Part(NamedTuple):
    """A part of the lane at ``x``, from a moment to the next part, or until a time that comes first."""

    x: float
    moment: int
    style: str
    title: str
    until: str = ""
    shrinks: bool = False


def life_svg(answer: Mapping[str, Any], prefix: str = "moment-") -> str:
    """The picture of an answer of inspectTask: a row for each moment, a lane for the message and each run.

    It links to the list of the story, whose items have the ids ``<prefix><index>``.
    """
    return "\n".join(_Picture(answer, prefix).drawn())


def life_html(answer: Mapping[str, Any], prefix: str) -> str:
    """The picture and the list of its story, for a page that has several of them, each with a prefix."""
    moments = enumerate(shortened(answer["story"]))
    items = (f'<li id="{prefix}{i}">{each["time"]} {_text(moment_words(each))}</li>' for i, each in moments)
    return f"{life_svg(answer, prefix)}\n<p>{LEGEND}</p>\n<ol>{''.join(items)}</ol>"


class _Picture:
    def __init__(self, answer: Mapping[str, Any], prefix: str) -> None:
        self._status = answer["status"]
        self._story = shortened(answer["story"])
        self._waits = answer["waitsFor"]
        self._now = answer["now"]
        self._prefix = prefix
        self._runs = range(len(self._status["runs"]))
        self._pitch = min(16.0, 84 / max(1, len(self._runs)))
        self._ticks = 36 + self._pitch * len(self._runs)
        rows = [(moment["time"], _label(moment), moment["what"]) for moment in self._story]
        if self._status["state"] in ("unscheduled", "pending", "running"):
            coming = [
                (wait["until"], _ENDS.get(wait["situation"], "then"), wait["sentence"])
                for wait in self._waits
                if wait.get("until", "") > self._now
            ]
            rows += [(self._now, "now", f"now the task is {self._status['state']}"), *sorted(coming)]
        self._rows = rows
        self._times = [*accumulate((_seconds(time) for time, _, _ in rows), max)]
        self._ys = [34.0]
        self._above = [""]  # each row: its day if that is another one than before, and how much later it is
        for (row, after), (begin, end) in zip(pairwise(rows), pairwise(self._times), strict=True):
            pause, day = end - begin, after[0][:10]
            words = [day] if day != row[0][:10] else []
            words += [f"{duration_words(pause)} later"] if pause >= _PAUSE else []
            room = (14 + min(16, 4 * log10(max(pause, _PAUSE) / _PAUSE))) if words else 0
            self._above.append(", ".join(words))
            self._ys.append(self._ys[-1] + 20 + room)

    def drawn(self) -> Iterator[str]:
        words = (
            f"The life of task {self._status['taskId']}, which is {self._status['state']}: its message and "
        )
        words += (
            f"{len(self._runs)} runs. Time goes down. The list beside the picture says the same in words."
        )
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="life" role="group" aria-label="{words}" '
            f'viewBox="0 0 {_WIDTH} {self._ys[-1] + 20:.0f}" width="100%" fill="none" stroke-width="1.5" '
            'font-family="ui-monospace, monospace">'
        )
        yield _words(_MESSAGE - 9, 12, "msg", 10) + _words(self._ticks + 9, 12, self._rows[0][0][:10], 10)
        shown = self._runs if self._pitch == 16 else self._runs[::10]
        yield from (_words(self._lane(run_id) - 3, 12, str(run_id), 10) for run_id in shown)
        yield from map(self._row, range(len(self._rows)))
        parts = [*self._parts()]
        for part, after in zip_longest(parts, parts[1:]):
            yield self._part(part, after.moment if after and after.x == part.x else None)
        yield "</svg>"

    def _row(self, row: int) -> str:
        time, label, title = self._rows[row]
        x, y = self._ticks, self._ys[row]
        drawn = _words(x + 9, y + 4, _cut(f"{time[11:19]} {label}", (_WIDTH - x - 9) / _CHARACTER))
        if self._above[row]:
            drawn += _words(x + 9, y - 13, self._above[row], 10)
        if row >= len(self._story) or self._story[row]["kind"] == "gap":
            drawn += _path("no moment", 2, y, f"M0 0H{x:g}")
            return f"<g><title>{time} {_text(title)}</title>{drawn}</g>"
        moment = self._story[row]
        lane = self._lane(moment["runId"]) if "runId" in moment else x
        lane = _MESSAGE if moment.get("endpoint", "").startswith("azure.") else lane
        drawn += _path("guide", lane, y, f"M0 0H{x - lane:g}") + _path(_kind(moment), x, y)
        if "movedTo" in moment:
            drawn += _path("moved", x, y, f"M0 0V{self._y(moment['movedTo']) - y:.1f}")
        return self._link(row, f"{time} {title}", drawn)

    def _link(self, moment: int, title: str, drawn: str, more: str = "") -> str:
        return f'<a href="#{self._prefix}{moment}"{more}><title>{_text(title)}</title>{drawn}</a>'

    def _parts(self) -> Iterator[_Part]:
        """What begins in the lanes. Where storage shows another message than the last one, what it has become
        was not seen.
        """
        parts = sorted(self._begun())
        shown = [_SHOWN[wait["situation"]] for wait in self._waits if wait["situation"] in _SHOWN]
        of_message = [part for part in parts if part.x == _MESSAGE]
        for last in of_message[-1:] if shown else ():
            has_ended = bool(last.until) and last.until <= self._now
            if ("visible" if has_ended else last.style) != shown[0]:
                title = f"what its message has become was not seen; now it is {shown[0]}"
                parts[parts.index(last)] = last._replace(style="unknown", title=title, until="")
        for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
            is_open = before and before.x == part.x and before.style in _OPEN
            if part.style != "gap" or is_open or (after and after.x == part.x):
                yield part

    def _begun(self) -> Iterator[_Part]:
        """What begins in the lanes with each moment."""
        asked = [moment for moment in self._story if "endpoint" in moment and "takenUntil" in moment]
        claims = {each["runId"]: each["takenUntil"] for each in asked if each["endpoint"] != "reclaimTask"}
        priority = ""
        for index, moment in enumerate(self._story):
            what = moment["what"]
            until = moment.get("takenUntil", "")
            priority = moment.get("priority", priority)
            if moment["kind"] == "gap":
                yield from (_Part(lane, index, "gap", what) for lane in self._lanes())
            elif moment.get("state") == "running":
                # how a claim shrinks that was not seen is not known
                run_id = moment["runId"]
                first = claims.get(run_id, until)
                yield _Part(self._lane(run_id), index, "running", what, first, run_id in claims)
            elif "state" in moment:
                yield _Part(self._lane(moment["runId"]), index, moment["state"], what)
            elif moment.get("endpoint") == "reclaimTask" and until:
                title = f"run {moment['runId']} is taken until {until}"
                yield _Part(self._lane(moment["runId"]), index, "running", title, until, shrinks=True)
            if "message" in moment:
                until = moment.get("hiddenUntil", until)
                title = f"message {moment['message']}" + (f" until {until}" if until else "")
                title += f", in the queue of priority {priority}: {what}"
                yield _Part(_MESSAGE, index, moment["message"], title, until)

    def _part(self, part: _Part, after: int | None) -> str:
        """The part, and the message that is visible again when the part ends by itself."""
        top = self._ys[part.moment]
        until = self._y(part.until) if part.until else inf
        now = self._ys[min(len(self._story), len(self._ys) - 1)]
        end = self._ys[after] if after is not None else max(now, until) if part.until else now
        again = ""
        if part.x == _MESSAGE:
            end = min(end, self._y(self._status["deadline"]))  # no message outlives it
            if until < end and any(moment.get("message") == "visible" for moment in self._story):
                drawn = _path("visible", _MESSAGE, until, f"M0 0V{end - until:.1f}")
                again = self._link(part.moment, f"message visible from {part.until} on", drawn, _OF_LANE)
        bottom = min(until, end)
        path = self._bar(part, bottom) if part.style == "running" else f"M0 0V{bottom - top:.1f}"
        return self._link(part.moment, part.title, _path(part.style, part.x, top, path), _OF_LANE) + again

    def _bar(self, part: _Part, bottom: float) -> str:
        """The time that is left of a claim is its width."""
        top, begin = self._ys[part.moment], self._times[part.moment]
        end = _seconds(part.until)
        rows = [*dict(zip(self._ys, self._times, strict=True)).items(), (self._y(part.until), end)]
        left = [(y, (end - time) / (end - begin)) for y, time in rows if top <= y <= bottom]
        edge = [(self._pitch * 0.4 * (min(1, max(0, it)) if part.shrinks else 1), y - top) for y, it in left]
        around = [*edge, *((-width, y) for width, y in reversed(edge))]
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in around) + "Z"

    def _lanes(self) -> list[float]:
        return [_MESSAGE, *map(self._lane, self._runs)]

    def _lane(self, run_id: int) -> float:
        """The middle of the lane of a run."""
        return 26 + self._pitch * (run_id + 0.5)

    def _y(self, time: str) -> float:
        """The place of a time, between the rows before and after it."""
        seconds = _seconds(time)
        after = bisect_left(self._times, seconds)
        if after in (0, len(self._times)):
            return self._ys[-1 if after else 0]
        share = (self._times[after] - seconds) / (self._times[after] - self._times[after - 1])
        return self._ys[after] - share * (self._ys[after] - self._ys[after - 1])


def _seconds(time: str) -> float:
    return parse_time(time).timestamp()


def _label(moment: Mapping[str, Any]) -> str:
    """Without who has sent a request, which the title says."""
    what: str = moment["what"]
    return f"{moment['endpoint']} {what.partition(': ')[2]}" if "endpoint" in moment else what


def _kind(moment: Mapping[str, Any]) -> str:
    """The kind of a moment, or of a request's answer."""
    status = moment.get("status", 0)
    answer = "answered" if 0 < status < 400 else "refused" if 400 <= status < 500 else "unanswered"
    return answer if moment["kind"] == "request" else str(moment["kind"])


def _text(words: str) -> str:
    return escape("".join(each if each.isprintable() else "\ufffd" for each in words))


def _cut(words: str, room: float) -> str:
    """The words, with … for what has no room. A character beside ASCII may be as wide as two."""
    widths = accumulate(1 if each.isascii() else 2 for each in words)
    fits = sum(width <= room - 1 for width in widths)
    return words if fits >= len(words) - 1 else words[:fits] + "…"


def _words(x: float, y: float, words: str, size: int = 12) -> str:
    return f'<text x="{x:g}" y="{y:.1f}" fill="currentColor" font-size="{size}">{_text(words)}</text>'


def _path(style: str, x: float, y: float, path: str = "") -> str:
    shape, attributes = _STYLES[style]
    return f'<path d="{shape or path}" transform="translate({x:g} {y:.1f})" {attributes}/>'
