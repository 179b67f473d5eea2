from contextlib import ExitStack, suppress
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.services.upload_slots import UploadSlots


def test_the_65th_upload_is_refused_until_one_has_ended_or_failed() -> None:
    slots = UploadSlots()
    for _ in range(2):
        with suppress(ValueError), ExitStack() as held:
            for _ in range(64):
                held.enter_context(slots.acquire())
            with pytest.raises(ServiceUnavailable, match="64 uploads are under way") as refusal:
                held.enter_context(slots.acquire())
            assert refusal.value.retry_after == timedelta(seconds=5)
            raise ValueError
