from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.services.artifacts.upload_slots import UploadSlots


def refused(take: Callable[[], object], words: str) -> None:
    with pytest.raises(ServiceUnavailable, match=words) as refusal:
        take()
    assert refusal.value.retry_after == timedelta(seconds=5)


def test_there_are_64_slots_and_16_for_each_run() -> None:
    slots = UploadSlots()
    for _ in range(2):
        with ExitStack() as held:

            def take(number: int, held: ExitStack = held) -> None:
                held.enter_context(slots.acquire(("task", number)))

            for place in range(64):
                take(place // 16)
                if place == 15:
                    refused(lambda: take(0), "16 uploads of this run")
            refused(lambda: take(99), "64 uploads are under way")
