"""The commands of the simulation: random runs, kills, interleavings."""

import argparse
import os
import sys
import time

from tests.simulation.random_run import Plan, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--tasks", type=int, default=200)
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    seed, code = given.seed, 0
    while True:
        began = time.monotonic()
        outcome = run(Plan(seed, given.tasks))
        took = time.monotonic() - began
        print(
            f"seed {seed}: {outcome.seconds:.0f} s, {outcome.calls} calls, {outcome.kills} kills, in {took:.1f} s",
            flush=True,
        )
        if outcome.broken:
            print(f"  BROKEN {outcome.broken}", flush=True)
            code = 1
        seed += 1
        if time.monotonic() > end:
            break
    sys.stdout.flush()
    os._exit(code)
