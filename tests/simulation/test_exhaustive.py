"""A kill wherever it leaves something else, and each order of the calls of ports of two calls."""

import pytest

from tests.simulation.conftest import Simulate

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def test_each_order_of_two_calls_breaks_no_promise(simulate: Simulate) -> None:
    said = simulate("orders").splitlines()
    assert len(said) == 10
    assert all(int(line.split()[-2]) > 1 for line in said), said


def test_a_kill_at_each_place_of_a_life_breaks_no_promise(simulate: Simulate) -> None:
    said = simulate("kills").splitlines()
    assert len(said) == 13
    assert all(int(line.split()[-2]) > 5 for line in said), said
