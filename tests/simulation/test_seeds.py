"""Random runs: 200 tasks, six processes, all faults."""

from pathlib import Path

import pytest

from tests.simulation.conftest import Simulate

pytestmark = pytest.mark.processes


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_promise(simulate: Simulate) -> None:
    said = simulate().splitlines()
    assert all(int(line.split()[4]) > 10 for line in said), said  # kills


def test_two_runs_of_a_seed_have_the_same_story(simulate: Simulate, tmp_path: Path) -> None:
    stories = [tmp_path / "one", tmp_path / "other"]
    for story in stories:
        simulate("--seed", "5", "--tasks", "10", "--processes", "3", "--trace", str(story))
    one, other = (story.read_text() for story in stories)
    assert one == other
    assert len(one.splitlines()) > 1000
