import math
from typing import Any

import pytest

from legacy_queue.worker.command import Payload, PayloadError


def test_a_list_is_run_as_it_is_and_a_string_is_run_by_the_shell() -> None:
    assert Payload.from_wire({"command": ["echo", "$HOME"]}).arguments == ("echo", "$HOME")
    assert Payload.from_wire({"command": "echo $HOME"}).arguments == ("/bin/sh", "-c", "echo $HOME")


def test_all_but_the_command_may_be_left_out() -> None:
    payload = Payload.from_wire({"command": ["true"]})
    assert (payload.env, payload.max_run_time, payload.artifacts) == ({}, math.inf, {})


def test_max_run_time_is_in_seconds() -> None:
    assert Payload.from_wire({"command": "x", "maxRunTime": 90}).max_run_time == 90
    assert Payload.from_wire({"command": "x", "maxRunTime": 0.5}).max_run_time == 0.5


def test_artifacts_are_declared_by_name() -> None:
    artifacts = {"public/x": {"type": "file", "path": "out/x", "expires": "2016-01-31T12:00:00.000Z"}}
    assert Payload.from_wire({"command": "x", "artifacts": artifacts}).artifacts == {"public/x": "out/x"}


FILE = {"type": "file", "path": "x"}


@pytest.mark.parametrize(
    "artifacts",
    [
        None,
        "x",
        [FILE],
        {"public/x": None},
        {"public/x": {"type": "file"}},
        {"public/x": {"path": "x"}},
        {"public/x": {"type": "directory", "path": "x"}},
        {"public/x": {"type": "file", "path": ""}},
        {"public/x": {"type": "file", "path": 1}},
        {"public/logs/live.log": FILE},
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
        {"command": ["echo", 1]},
        {"command": [["echo"]]},
        {"command": {"echo": "x"}},
        {"command": "x", "env": None},
        {"command": "x", "env": ["A=b"]},
        {"command": "x", "env": {"A": 1}},
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
