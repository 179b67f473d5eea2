"""The parser of the stream that ``GET /events`` sends."""

from legacy_queue.testing.queue_http import parse_events


def test_each_blank_line_ends_an_event_and_what_is_cut_off_is_dropped() -> None:
    lines = [b"retry: 2000", b"", b": a comment", b"", b'data: {"a": "b: c"}', b"", b"id:2", b"", b"id: 3"]
    expected = [{"retry": "2000"}, {"": "a comment"}, {"data": '{"a": "b: c"}'}, {"id": "2"}]
    assert list(parse_events(lines)) == expected
