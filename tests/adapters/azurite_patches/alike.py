"""Sends the same requests to two Azurites."""

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
    """Both give the same answers; returns them, without times and ids. ``hint`` helps to repeat a failure."""
    with ThreadPoolExecutor() as pool:
        expected, answered = pool.map(transcript, (stock, patched), (calls, calls))
    for number, (stock_answer, patched_answer) in enumerate(zip_longest(expected, answered)):
        assert patched_answer == stock_answer, f"call {number} of {calls.__name__} {hint}"
    return expected
