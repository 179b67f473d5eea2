"""Asks two Azurites the same."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

from tests.adapters.azurite_patches.wire import Wire

Calls = Callable[[Wire], None]


def transcript(az: Wire, calls: Calls) -> list[object]:
    az.close()
    az.transcript.clear()
    calls(az)
    return list(az.transcript)


def assert_alike(stock: Wire, patched: Wire, calls: Calls, hint: str = "") -> list[object]:
    """What both have answered, in their order, without times and ids; ``hint`` helps to repeat a failure."""
    with ThreadPoolExecutor() as pool:
        expected, answered = pool.map(transcript, (stock, patched), (calls, calls))
    for number, (one, other) in enumerate(zip_longest(expected, answered)):
        assert other == one, f"call {number} of {calls.__name__} {hint}"
    return expected
