"""LegacyQueue on Azurite."""

import pytest

from legacy_queue.testing import LegacyQueue, RequestFailed

from .test_queue import PROTOCOLS

pytestmark = pytest.mark.processes


@pytest.mark.legacy_queue(storage="azurite")
def test_azurite_storage_does_all_but_move_the_clock(legacy_queue: LegacyQueue) -> None:
    for protocol in PROTOCOLS:
        task_id = legacy_queue.create_task(worker_type="builds")
        for _ in range(2):
            [message] = legacy_queue.messages("builds")
            assert (message["taskId"], message["dequeueCount"]) == (task_id, 0)
        run = legacy_queue.claim("builds", protocol=protocol)
        assert run
        assert run.report("completed")["state"] == "completed"
    assert {"azure.receive", "azure.delete"} < {request["endpoint"] for request in legacy_queue.requests()}
    with pytest.raises(RequestFailed, match=r"409 RequestConflict .*--storage memory"):
        legacy_queue.advance("1s")
    legacy_queue.create_task(worker_type="builds")
    legacy_queue.reset()
    assert (legacy_queue.messages("builds"), legacy_queue.events()) == ([], [])
