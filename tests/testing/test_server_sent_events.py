"""The parser of the stream that ``GET /events`` sends."""

from legacy_queue.testing.queue_http import parse_events


def test_each_blank_line_ends_an_event() -> None:
    lines = [b"retry: 2000", b"", b"id: 1", b'data: {"a": "b: c"}', b"", b"id:2", b""]
    assert list(parse_events(lines)) == [{"retry": "2000"}, {"id": "1", "data": '{"a": "b: c"}'}, {"id": "2"}]


def test_a_comment_is_a_field_without_a_name() -> None:
    assert list(parse_events([b": keep-alive", b""])) == [{"": "keep-alive"}]


def test_an_event_that_is_cut_off_is_dropped() -> None:
    assert list(parse_events([b"id: 1", b"", b"id: 2"])) == [{"id": "1"}]
