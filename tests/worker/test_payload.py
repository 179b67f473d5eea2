from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.worker.payload import MalformedPayload, Payload


def test_a_list_is_run_as_it_is_and_a_string_by_the_shell() -> None:
    assert Payload.from_wire({"command": ["echo", "$HOME"]}).arguments == ("echo", "$HOME")
    assert Payload.from_wire({"command": "echo $HOME"}).arguments == ("/bin/sh", "-c", "echo $HOME")


def test_env_and_max_run_time_may_be_left_out() -> None:
    payload = Payload.from_wire({"command": ["true"]})
    assert payload.env == {}
    assert payload.max_run_time is None


def test_max_run_time_is_in_seconds() -> None:
    assert Payload.from_wire({"command": "x", "maxRunTime": 90}).max_run_time == timedelta(seconds=90)
    assert Payload.from_wire({"command": "x", "maxRunTime": 0.5}).max_run_time == timedelta(seconds=0.5)
    assert Payload.from_wire({"command": "x", "maxRunTime": 10**400}).max_run_time is not None


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
def test_a_payload_that_cannot_be_run_is_malformed(payload: Any) -> None:
    with pytest.raises(MalformedPayload):
        Payload.from_wire(payload)


def test_the_explanation_shows_no_value_of_env() -> None:
    with pytest.raises(MalformedPayload) as malformed:
        Payload.from_wire({"command": "x", "env": {"TOKEN": "s3cret", "A": 1}})
    assert "s3cret" not in str(malformed.value)
