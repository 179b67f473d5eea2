"""The plot of scripts/bench: a bar of cycles per second for each side and number of clients, as SVG."""

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

_ROW, _LEFT, _WIDTH, _RIGHT = 22, 260, 480, 220  # pixels
_COLOURS = {"floor": "#9aa5b1", "azurite": "#2563a8", "memory": "#3c8c4b"}
_OTHER = "#b8662b"


def svg(rows: Sequence[dict[str, Any]], title: str) -> str:
    """One bar for each row of cycles, its median; a line from the slowest to the fastest round."""
    bars = [row for row in rows if row["unit"] == "cycle"]
    longest = max((max(row["rounds"]) for row in bars), default=1.0)
    height = _ROW * (len(bars) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _RIGHT}" height="{height}">',
        "<style>text { font: 12px sans-serif }</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        _text(10, _ROW, title, "start"),
        _text(10, 2 * _ROW, "cycles per second: median, slowest and fastest round", "start"),
    ]
    for number, row in enumerate(bars, 3):
        parts += _bar(number * _ROW, row, _WIDTH / longest)
    return "\n".join([*parts, "</svg>", ""])


def _bar(top: int, row: dict[str, Any], scale: float) -> list[str]:
    colour = next((colour for name, colour in _COLOURS.items() if row["side"] == name), _OTHER)
    if row["side"].startswith("floor"):
        colour = _COLOURS["floor"]
    length, middle = row["perSecond"] * scale, top - 4
    low, high = (_LEFT + edge(row["rounds"]) * scale for edge in (min, max))
    cpu = ", ".join(f"{name} {ms:.1f}" for name, ms in row["cpuMs"].items())
    return [
        _text(_LEFT - 8, top, f"{row['part']}: {row['side']}, {row['clients']} clients", "end"),
        f'<rect x="{_LEFT}" y="{top - 13}" width="{length:.1f}" height="16" fill="{colour}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="black"/>',
        _text(int(max(high, _LEFT + length)) + 8, top, f"{row['perSecond']:.1f}   ({cpu} ms)", "start"),
    ]


def _text(x: int, y: int, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
