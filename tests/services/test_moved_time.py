"""A moved clock gives the same results as real time."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from legacy_queue.adapters.clock import SystemClock
from legacy_queue.services.background import Pace
from tests.services.harness import SECOND
from tests.services.scenario_runs import RealTime, Run, replayed
from tests.services.scenarios import CERTAIN, Scenario, Server, scenarios

DRAWN, CHOSEN = 400, 60  # scenarios: hypothesis draws many equal ones
ENOUGH = 40  # scenarios that were compared to their end
TRIES = 3  # of a scenario that differs
PACE = Pace(tick=timedelta(milliseconds=20))


@pytest.mark.timeout(600)  # an idle machine takes 15 s
def test_a_moved_clock_gives_the_results_of_real_time() -> None:
    """If the machine is too busy for claims of one second, they last longer, until enough was compared.

    What differs is repeated so too: a defect differs each time.
    """
    compared, missing, unit = 0, set(CERTAIN), SECOND
    differing: Counter[Scenario] = Counter()
    while compared < ENOUGH or missing:
        drawn = [*CERTAIN, *differing, *random.sample(distinct_scenarios(), CHOSEN)]
        for scenario, real in zip(drawn, in_real_time(drawn, unit), strict=True):
            moved, unexplained = replayed(scenario, real, unit)
            if unexplained or (moved.answers, moved.outcome) != (real.answers, real.outcome):
                differing[scenario] += 1
                missing.add(scenario)
                assert differing[scenario] < TRIES, f"{scenario}: {real}, but {moved} and {unexplained}"
            elif real.outcome:
                compared += 1
                missing.discard(scenario)
        unit *= 2


def distinct_scenarios() -> list[Scenario]:
    drawn: dict[object, Scenario] = {}

    @settings(
        max_examples=DRAWN, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(scenarios())
    def draw(scenario: Scenario) -> None:
        drawn[scenario.steps] = scenario

    draw()
    return list(drawn.values())


def in_real_time(drawn: list[Scenario], unit: timedelta) -> list[Run]:
    """Run all scenarios at once, on one server with its threads."""
    server = Server(SystemClock(), unit)
    background = server.services.background(PACE)
    background.start()
    try:
        with ThreadPoolExecutor(len(drawn)) as pool:
            return list(pool.map(lambda scenario: RealTime(server, scenario).run(), drawn))
    finally:
        background.stop()
