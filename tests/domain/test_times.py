from datetime import datetime, timedelta, timezone

import pytest

from legacy_queue.domain.times import (
    age_words,
    end_of_day,
    format_time,
    parse_duration,
    parse_time,
    to_milliseconds,
    whole_seconds,
)
from tests.domain.sample_tasks import MS


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("2015-01-22T19:05:57.089Z", "2015-01-22T19:05:57.089Z"),
        ("2015-01-22T19:05:57.089402399Z", "2015-01-22T19:05:57.089Z"),
        ("2015-01-22T19:05:57Z", "2015-01-22T19:05:57.000Z"),
        ("2015-01-23T00:35:57.5+05:30", "2015-01-22T19:05:57.500Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
    ],
)
def test_every_time_format_that_clients_send_is_read(text: str, formatted: str) -> None:
    assert format_time(parse_time(text)) == formatted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2015-01-22T19:05:57",
        "2015-01-22T19:05:57Z\n",
        "\uff12\uff10\uff11\uff15-01-22T19:05:57Z",
        "2015-02-30T19:05:57Z",
        "2015-01-22T19:05:57+99:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_the_error_for_a_malformed_time_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time: expected one like|is out of range") as error:
        parse_time(text)
    assert repr(text) in str(error.value)


def test_a_time_in_another_zone_is_converted_to_utc() -> None:
    there = datetime(2015, 1, 22, 20, 5, 57, 89_402, timezone(timedelta(hours=1)))
    assert to_milliseconds(there).isoformat() == "2015-01-22T19:05:57.089000+00:00"
    assert format_time(there) == "2015-01-22T19:05:57.089Z"


def test_a_fraction_of_a_second_is_rounded_up() -> None:
    assert [whole_seconds(count * MS) for count in (0, 1, 1000, 1001, -1)] == [0, 1, 1, 2, 0]


def test_a_day_ends_at_midnight_except_the_last_day_of_the_year_9999() -> None:
    for time, end in (
        ("2030-01-02T00:00:00.000Z", "2030-01-03T00:00:00.000Z"),
        ("2030-12-31T23:59:59.999Z", "2031-01-01T00:00:00.000Z"),
        ("9999-12-31T01:02:03.004Z", "9999-12-31T01:02:03.004Z"),
    ):
        assert format_time(end_of_day(parse_time(time))) == end


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("1500ms", timedelta(seconds=1.5)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("99999999d999999999h", timedelta(days=99_999_999, hours=999_999_999)),
    ],
)
def test_a_duration_is_a_list_of_numbers_with_units_the_largest_first(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "s", "-5s", "1.5s", "5 s", "5S", "5s\n", "5w", "1" * 9 + "d", "1" * 10 + "s"),
        *("1" * 14 + "ms", "\uff15s", "31s3m", "3m3m", "3m 31s", "3m31"),
    ],
)
def test_the_error_for_a_malformed_duration_shows_it(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as error:
        parse_duration(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.9, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (86400, "1 day"), (200_000, "2 days")],
)
def test_an_age_is_given_in_its_largest_unit(seconds: float, words: str) -> None:
    assert age_words(seconds) == words
