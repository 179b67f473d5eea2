"""To which requests a fault happens."""

from typing import Any

import pytest

from legacy_queue.domain.errors import InputError, ResourceNotFound
from legacy_queue.domain.fault import SIGNED_URLS, Target
from legacy_queue.services.control.fault_registry import FaultRegistry


@pytest.fixture
def faults() -> FaultRegistry:
    return FaultRegistry((Target("claimTask", True, True), Target("createTask", True, False), *SIGNED_URLS))


def add(faults: FaultRegistry, endpoint: str = "claimTask", **wire: Any) -> str:
    return str(faults.add({"endpoint": endpoint, **wire})["faultId"])


def happening(
    faults: FaultRegistry, count: int, endpoint: str = "claimTask", task_id: str = "t"
) -> list[str]:
    """The faultIds of so many requests, "" for no fault."""
    happened = [faults.next(endpoint, task_id, lambda: "group/alice") for _ in range(count)]
    return [fault.fault_id if fault else "" for fault in happened]


def fired(faults: FaultRegistry) -> list[int]:
    return [fault["fired"] for fault in faults.list()]


def test_the_fault_that_was_added_first_happens_first(faults: FaultRegistry) -> None:
    first, second = add(faults, status=503, times=1), add(faults, status=409, times=1)
    assert happening(faults, 3) == [first, second, ""]


def test_a_fault_of_a_worker_does_not_match_other_workers(faults: FaultRegistry) -> None:
    add(faults, status=503, worker="group/bob")
    assert happening(faults, 1) == [""]
    assert faults.next("claimTask", "t") is None, "of no known worker"
    assert faults.next("claimTask", "t", lambda: "group/bob")
    assert fired(faults) == [1]


def test_a_fault_of_a_message_happens_only_to_messages(faults: FaultRegistry) -> None:
    lose, busy = add(faults, "azure.receive", lose=True), add(faults, "azure.receive", status=503)
    assert happening(faults, 1, "azure.receive", "") == [busy]
    fault = faults.next("azure.receive", "t", has_message=True)
    assert fault
    assert fault.fault_id == lose


def test_a_removed_fault_happens_no_more(faults: FaultRegistry) -> None:
    fault_id, other = add(faults, status=503), add(faults, status=409)
    happening(faults, 1)
    assert faults.remove(fault_id) == {
        "faultId": fault_id,
        "endpoint": "claimTask",
        "status": 503,
        "fired": 1,
    }
    assert happening(faults, 1) == [other]
    with pytest.raises(ResourceNotFound, match=f"there is no fault {fault_id}"):
        faults.remove(fault_id)


def test_more_than_a_thousand_faults_are_refused(faults: FaultRegistry) -> None:
    for _ in range(1000):
        add(faults, status=503)
    with pytest.raises(InputError, match="there are 1000 faults, the maximum"):
        add(faults, status=503)
