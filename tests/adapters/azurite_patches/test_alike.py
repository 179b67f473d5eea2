"""Patched Azurite answers and stores what stock Azurite does, asked the same with the same bytes."""

from types import ModuleType

import pytest

from tests.adapters.azurite_patches import other_calls, query_calls, queue_calls, signature_calls, table_calls
from tests.adapters.azurite_patches.alike import Calls, assert_alike
from tests.adapters.azurite_patches.conftest import Pair
from tests.adapters.azurite_patches.state import note_everything
from tests.adapters.azurite_patches.wire import Wire


def calls_of(module: ModuleType) -> list[Calls]:
    """The module's own functions of a Wire alone."""
    return [
        one
        for name, one in vars(module).items()
        if getattr(one, "__module__", "") == module.__name__ and not name.startswith("_")
        if getattr(one, "__annotations__", {}) == {"az": Wire, "return": None}
    ]


MODULES = (queue_calls, table_calls, query_calls, signature_calls, other_calls)


@pytest.mark.parametrize("calls", [one for module in MODULES for one in calls_of(module)])
def test_both_azurites_answer_each_call_alike(pair: Pair, calls: Calls) -> None:
    assert_alike(pair.stock, pair.patched, calls)


def test_both_azurites_hold_the_same_after_all_calls(pair: Pair) -> None:
    assert_alike(pair.stock, pair.patched, note_everything)


def test_the_patched_azurite_keeps_a_character_whole_that_is_split_between_two_packets(pair: Pair) -> None:
    """Azurite itself makes two broken characters of it."""
    body = queue_calls.message("half an ü").encode()
    middle = body.index("ü".encode()) + 1
    texts = []
    for az in (pair.stock, pair.patched):
        az.queue("PUT", "/characters")
        az.queue("POST", "/characters/messages", chunks=(body[:middle], body[middle:]))
        texts.append(az.queue("GET", "/characters/messages").element("MessageText"))
    assert texts == ["half an \ufffd\ufffd", "half an ü"]
