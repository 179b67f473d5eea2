from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.services.artifacts.upload_slots import UploadSlots

MIB = 1024 * 1024


def refused(take: Callable[[], object], words: str) -> None:
    with pytest.raises(ServiceUnavailable, match=words) as refusal:
        take()
    assert refusal.value.retry_after == timedelta(seconds=5)


def test_a_run_gets_16_of_64_slots_and_four_runs_that_take_all_they_get_leave_20() -> None:
    slots = UploadSlots()
    for _ in range(2):
        with ExitStack() as held:
            for run_id, expected in enumerate((16, 12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 1)):

                def take(run_id: int = run_id) -> None:
                    held.enter_context(slots.acquire(("task", run_id)))

                for _slot in range(expected):
                    take()
                refused(take, f"{expected} uploads of this run")


def test_a_large_block_takes_a_slot_for_each_4_mib() -> None:
    slots = UploadSlots(4)
    with slots.acquire(None, 12 * MIB + 1):
        refused(lambda: slots.acquire(("task", 0), 0).__enter__(), "4 in all")
    with slots.acquire(None, 12 * MIB), slots.acquire(("task", 0), 0):
        pass
