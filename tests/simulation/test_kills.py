"""A process that is killed at any call of a task's life breaks no promise."""

import pytest

from tests.simulation.conftest import Simulate

pytestmark = pytest.mark.processes


@pytest.mark.timeout(600)
def test_a_kill_at_each_call_of_a_life_breaks_no_promise(simulate: Simulate) -> None:
    said = simulate("kills").splitlines()
    assert len(said) == 13
    assert all(int(line.split()[-2]) > 40 for line in said), said
