from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.worker.command import MAX_RUN_TIME, Declared, Payload, PayloadError


def test_a_list_is_run_as_it_is_and_a_string_is_run_by_the_shell() -> None:
    assert Payload.from_wire({"command": ["echo", "$HOME"]}).arguments == ("echo", "$HOME")
    assert Payload.from_wire({"command": "echo $HOME"}).arguments == ("/bin/sh", "-c", "echo $HOME")


def test_env_and_max_run_time_may_be_left_out() -> None:
    payload = Payload.from_wire({"command": ["true"]})
    assert payload.env == {}
    assert payload.max_run_time == timedelta(seconds=MAX_RUN_TIME)


def test_max_run_time_is_in_seconds() -> None:
    assert Payload.from_wire({"command": "x", "maxRunTime": 90}).max_run_time == timedelta(seconds=90)
    assert Payload.from_wire({"command": "x", "maxRunTime": 0.5}).max_run_time == timedelta(seconds=0.5)
    assert Payload.from_wire({"command": "x", "maxRunTime": 10**400}).max_run_time == timedelta(
        seconds=MAX_RUN_TIME
    )


def test_artifacts_are_declared_as_an_object_or_as_a_list() -> None:
    in_2016 = "2016-01-31T12:00:00.000Z"
    artifact = {"type": "file", "path": "out/x", "expires": in_2016}
    expected = Declared("public/x", False, "out/x", datetime(2016, 1, 31, 12, tzinfo=UTC))
    for artifacts in ({"public/x": artifact}, [{**artifact, "name": "public/x"}]):
        assert Payload.from_wire({"command": "x", "artifacts": artifacts}).artifacts == (expected,)
    unnamed = Payload.from_wire({"command": "x", "artifacts": [{"type": "directory", "path": "out"}]})
    assert unnamed.artifacts == (Declared("out", True, "out", None),)


FILE = {"type": "file", "path": "x"}


@pytest.mark.parametrize(
    "artifacts",
    [
        None,
        "x",
        ["x"],
        [{}],
        {"public/x": None},
        {"public/x": {"type": "file"}},
        {"public/x": {"path": "x"}},
        {"public/x": {"type": "volume", "path": "x"}},
        {"public/x": {"type": "file", "path": ""}},
        {"public/x": {"type": "file", "path": "\0"}},
        {"public/x": {"type": "file", "path": 1}},
        {"": FILE},
        {"h\u00e9llo": FILE},
        {"x" * 1025: FILE},
        {"public/logs/live.log": FILE},
        {"public/logs/live_backing.log": FILE},
        [{**FILE, "name": 1}],
        [{"type": "file", "path": "h\u00e9llo"}],
        [FILE, FILE],
        [{**FILE, "expires": 12}],
        [{**FILE, "expires": "tomorrow"}],
        [{**FILE, "expires": "2016-01-31T12:00:00"}],
        [{**FILE, "expires": "0001-01-01T00:00:00+12:00"}],
    ],
)
def test_malformed_artifacts_raise_payload_error(artifacts: Any) -> None:
    with pytest.raises(PayloadError, match=r"artifact|public/logs"):
        Payload.from_wire({"command": "x", "artifacts": artifacts})


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"command": None},
        {"command": ""},
        {"command": []},
        {"command": [""]},
        {"command": ["echo", 1]},
        {"command": [["echo"]]},
        {"command": {"echo": "x"}},
        {"command": "echo \0"},
        {"command": ["echo", "\ud800"]},
        {"command": "x", "env": None},
        {"command": "x", "env": ["A=b"]},
        {"command": "x", "env": {"A": 1}},
        {"command": "x", "env": {"A": "\0"}},
        {"command": "x", "env": {"": "b"}},
        {"command": "x", "env": {"A=B": "c"}},
        {"command": "x", "maxRunTime": None},
        {"command": "x", "maxRunTime": "10"},
        {"command": "x", "maxRunTime": True},
        {"command": "x", "maxRunTime": 0},
        {"command": "x", "maxRunTime": -1},
        {"command": "x", "maxRunTime": float("nan")},
    ],
)
def test_a_payload_that_cannot_be_run_raises_payload_error(payload: Any) -> None:
    with pytest.raises(PayloadError):
        Payload.from_wire(payload)


def test_the_message_of_a_payload_error_shows_no_value_of_env() -> None:
    with pytest.raises(PayloadError) as malformed:
        Payload.from_wire({"command": "x", "env": {"TOKEN": "s3cret", "A": 1}})
    assert "s3cret" not in str(malformed.value)
