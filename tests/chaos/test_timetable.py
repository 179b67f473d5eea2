import random
from collections import Counter

import pytest

from .timetable import KILLED, Act, Wanted, timetable

WANTED = Wanted(seconds=240, servers=2, kills=20, freezes=2, stops=2, longest_freeze=25)


@pytest.mark.parametrize("seed", range(5))
def test_all_acts_are_within_the_load(seed: int) -> None:
    acts = timetable(WANTED, random.Random(seed))
    counted = Counter(act.what for act in acts)
    assert sum(counted[what] for what in KILLED) == 20
    assert min(counted[what] for what in KILLED) == 6
    assert [counted[what] for what in ("freeze", "thaw", "stop", "start")] == [2, 2, 2, 2]
    assert acts[0].at > 0
    assert acts[-1].at < WANTED.seconds
    assert acts == sorted(acts, key=lambda act: act.at)


@pytest.mark.parametrize("seed", range(5))
def test_outages_of_storage_never_overlap_and_the_longest_freeze_has_its_maximum(seed: int) -> None:
    storage = [act for act in timetable(WANTED, random.Random(seed)) if act.is_of_storage]
    ends = {"freeze": "thaw", "stop": "start"}
    pairs = list(zip(storage[::2], storage[1::2], strict=True))
    assert all(ends[begin.what] == end.what for begin, end in pairs)
    durations = [end.at - begin.at for begin, end in pairs if begin.what == "freeze"]
    assert max(durations) == pytest.approx(25)


def test_the_same_seed_gives_the_same_acts_and_another_seed_gives_others() -> None:
    def acts(seed: str) -> list[Act]:
        return timetable(WANTED, random.Random(seed))

    assert acts("a") == acts("a") != acts("b")
