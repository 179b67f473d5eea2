"""The acts on servers and storage and their times, the same for the same seed."""

import random
from dataclasses import dataclass

KILLED = ("worker", "supervisor", "both")


@dataclass(frozen=True)
class Act:
    """``what``: a kill, ``freeze``, ``thaw``, ``stop`` or ``start``; ``at`` seconds after the load began."""

    at: float
    what: str
    server: int = 0

    @property
    def is_of_storage(self) -> bool:
        return self.what not in KILLED


@dataclass(frozen=True)
class Wanted:
    """How many kills of servers, freezes and stops of storage, in so many seconds."""

    seconds: float
    servers: int
    kills: int
    freezes: int
    stops: int
    longest_freeze: float


def timetable(wanted: Wanted, chance: random.Random) -> list[Act]:
    """The acts in order. Kills come at any time, also while storage is away; freezes and stops never overlap.

    The first freeze has the maximum duration.
    """
    acts: list[Act] = []
    step = wanted.seconds / (wanted.kills + 1)
    kinds = [KILLED[number % len(KILLED)] for number in range(wanted.kills)]
    chance.shuffle(kinds)
    for number, kind in enumerate(kinds):
        acts.append(Act(step * (number + chance.uniform(0.6, 1.4)), kind, chance.randrange(wanted.servers)))
    outages = [("freeze", "thaw")] * wanted.freezes + [("stop", "start")] * wanted.stops
    interval = wanted.seconds / max(1, len(outages))
    order = list(enumerate(outages))
    chance.shuffle(order)
    for place, (number, (begin, end)) in enumerate(order):
        max_duration = min(wanted.longest_freeze if begin == "freeze" else 5.0, interval / 2)
        duration = max_duration if number == 0 else chance.uniform(max_duration / 5, max_duration)
        start = interval * place + chance.uniform(interval / 10, interval / 3)
        acts += [Act(start, begin), Act(start + duration, end)]
    return sorted(acts, key=lambda act: act.at)
