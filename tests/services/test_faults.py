"""Which faults are accepted, and which requests they hit."""

import re
from typing import Any

import pytest

from legacy_queue.domain.errors import InputError
from legacy_queue.services.control.fault import SIGNED_URLS, Fault, Target, fault_of

TARGETS = (
    Target("createTask", True, False),
    Target("claimTask", True, True),
    Target("claimWork", False, True),
    Target("pollTaskUrls", False, False),
    *SIGNED_URLS,
)


def fault(endpoint: str = "claimTask", **wire: Any) -> Fault:
    return fault_of({"endpoint": endpoint, **wire}, "00000000", 5, TARGETS)


def never() -> str:
    raise AssertionError("the worker was asked for")


@pytest.mark.parametrize(
    ("endpoint", "wire", "message"),
    [
        ("claimTasks", {"status": 503}, "there is no 'claimTasks'; the nearest is claimTask"),
        ("claimTask", {"status": 503, "drop": "after"}, "status and drop: expected one of these"),
        ("claimTask", {}, "expected an effect (status, drop, sas, double, lose, stale), or a delay"),
        (
            "claimTask",
            {"sas": "expired"},
            "sas is only for pollTaskUrls: expected status, drop or delay for claimTask",
        ),
        ("pollTaskUrls", {"sas": "soon"}, "sas: 'soon' is not a duration"),
        ("claimWork", {"status": 503, "taskId": "t"}, "a request to claimWork names no task"),
        ("azure.receive", {"status": 503, "taskId": "t"}, "learns the task of a message only when"),
        ("createTask", {"status": 503, "worker": "a/b"}, "does not name the worker that sent it"),
        ("claimTask", {"drop": "after", "message": "x"}, "message: expected a status"),
        ("claimTask", {"status": 503, "seed": 1}, "seed: expected a probability"),
        (
            "claimTask",
            {"delay": "soon"},
            "delay: 'soon' is not a duration: expected one like 1500ms, 90s, 3m31s, 2h or 5d",
        ),
        ("claimTask", {"delay": "11m"}, "delay is '11m': expected at most 10m"),
    ],
)
def test_an_impossible_fault_is_refused(endpoint: str, wire: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        fault(endpoint, **wire)


def test_a_fault_hits_only_requests_with_its_endpoint_task_and_worker() -> None:
    assert fault(status=503).is_for("t", never)
    assert fault(status=503, taskId="t").is_for("t", never)
    assert not fault(status=503, taskId="t", worker="group/bob").is_for("u", never)
    assert not fault(status=503, taskId="t").is_for("u", never)
    by_worker = [fault(status=503, worker=worker) for worker in ("group/alice", "group/bob")]
    assert [each.is_for("t", lambda: "group/alice") for each in by_worker] == [True, False]


def test_the_same_seed_chooses_the_same_requests() -> None:
    chosen = [
        [fault(status=503, probability=0.3, seed=seed).is_chosen(number) for number in range(1000)]
        for seed in (1, 1, 2)
    ]
    assert chosen[0] == chosen[1] != chosen[2]
    # `printf 1/NUMBER | sha256sum | head -c 14` is below 0.3 of 16^14 for these numbers
    assert [number for number in range(10) if chosen[0][number]] == [0, 1, 3, 7]
    assert 250 < sum(chosen[0]) < 350
    assert fault(status=503).is_chosen(0)
