"""Server-sent events, as ``GET /events`` sends them."""

from collections.abc import Iterable, Iterator


def parse_events(lines: Iterable[bytes]) -> Iterator[dict[str, str]]:
    """The fields of each event, whose lines have no line ends. A comment is a field without a name.

    The lines of an event that the stream cuts off are dropped. Source: HTML, "Server-sent events". Reads
    only the queue's form: no field is repeated, and lines end with a line feed.
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.decode().partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            yield fields
            fields = {}
