"""Random runs: 200 tasks, six processes, all faults."""

from pathlib import Path

import pytest

from tests.simulation.conftest import Simulate

pytestmark = pytest.mark.processes


@pytest.mark.timeout(600)
def test_three_random_runs_break_no_promise(simulate: Simulate) -> None:
    *runs, _ = simulate("usual").splitlines()
    assert len(runs) == 3
    assert all(int(line.split()[4]) > 10 for line in runs), runs  # kills


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_the_random_runs_of_the_day_break_no_promise(simulate: Simulate) -> None:
    assert simulate("day").endswith("10 of 10 seeds are clean\n")


def test_two_runs_of_a_seed_have_the_same_story(simulate: Simulate, tmp_path: Path) -> None:
    stories = [tmp_path / "one", tmp_path / "other"]
    for story in stories:
        simulate("--seed", "5", "--tasks", "10", "--processes", "3", "--trace", str(story))
    one, other = (story.read_text() for story in stories)
    assert one == other
    assert len(one.splitlines()) > 1000
