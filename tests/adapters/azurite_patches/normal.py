"""The part of a response that two Azurites must have in common: times, ids and receipts by their shape."""

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

_DATE = r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"
_LIFE = re.compile(rf"<InsertionTime>({_DATE})</InsertionTime><ExpirationTime>({_DATE})</ExpirationTime>")
_VISIBLE = re.compile(rf"<TimeNextVisible>({_DATE})</TimeNextVisible>")
_SHAPES = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"), "<uuid1>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d(?::|%3A)\d\d(?::|%3A)\d\d\.\d{7}Z"), "<time7>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d(?::|%3A)\d\d(?::|%3A)\d\d\.\d{3}Z"), "<time3>"),
    (re.compile(r"(?<=popreceipt=)[A-Za-z0-9]{28}(?=&|$)"), "<receipt>"),
    (re.compile(r"(?<=<PopReceipt>)[A-Za-z0-9]{28}(?=</PopReceipt>)"), "<receipt>"),
    (re.compile(r"(?<=<Etag>)\"?0x[0-9A-F]{15,16}\"?(?=</Etag>)"), "<etag>"),
    (re.compile(_DATE), "<date>"),
)
_HEADERS = {
    "x-ms-popreceipt": (re.compile(r"[A-Za-z0-9]{28}"), "<receipt>"),
    "etag": (re.compile(r'"0x[0-9A-F]{15,16}"'), "<etag>"),
}


def normal(answer: Any) -> tuple[object, ...]:
    """Status line, headers in their order, body. Times that follow from the request stay, as seconds."""
    dates = [value for name, value in answer.headers if name.lower() == "date"]
    begun = parsedate_to_datetime(dates[0]) if dates else None
    headers = [(name, _header(name.lower(), value, begun)) for name, value in answer.headers]
    return (
        answer.version,
        answer.status,
        answer.reason,
        headers,
        text(answer.body.decode(errors="replace"), begun),
    )


def text(body: str, begun: datetime | None = None) -> str:
    body = _LIFE.sub(lambda found: f"<life {_life(found[1], found[2])}>", body)
    body = _VISIBLE.sub(lambda found: f"<visible after {_after(found[1], begun)}>", body)
    for shape, name in _SHAPES:
        body = shape.sub(name, body)
    return body


def _header(name: str, value: str, begun: datetime | None) -> str:
    if name == "x-ms-time-next-visible":
        return f"<visible after {_after(value, begun)}>"
    if name in _HEADERS:
        shape, shown = _HEADERS[name]
        if shape.fullmatch(value):
            return shown
    return text(value)


def _life(inserted: str, expires: str) -> str:
    return "for ever" if " 9999 " in expires else _after(expires, parsedate_to_datetime(inserted))


def _after(time: str, begun: datetime | None) -> str:
    return f"{(parsedate_to_datetime(time) - begun).total_seconds():g} s" if begun else "?"
