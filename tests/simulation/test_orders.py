"""Two concurrent calls break no promise, in whatever order their calls of ports happen."""

import pytest

from tests.simulation.conftest import Simulate

pytestmark = pytest.mark.processes


@pytest.mark.timeout(600)
def test_each_order_of_two_calls_breaks_no_promise(simulate: Simulate) -> None:
    said = simulate("orders").splitlines()
    assert len(said) == 9
    assert all(int(line.split()[-2]) > 10 for line in said), said
