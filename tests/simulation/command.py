"""Runs of the simulated world: random ones by their seeds; with ``kills`` a life with a kill at each of its
calls, with ``orders`` two calls in each order. A broken promise ends with exit code 1, after the story of
what it is about.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.simulation.exhaustive import LIVES, PAIRS, kills, orders
from tests.simulation.random_run import FAULTS, SEEDS, SKEWED, Outcome, Plan, run, shrunk
from tests.simulation.record import Broken

_LINES = 80  # of a story


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("what", nargs="?", default="random", choices=("random", "kills", "orders"))
    parser.add_argument("name", nargs="?", default="", help="only lives or pairs that say this")
    parser.add_argument(
        "--seed", type=int, action="append", help="instead of the usual and the day's; repeatable"
    )
    parser.add_argument("--minutes", type=float, default=0.0, help="go on with further seeds for so long")
    parser.add_argument(
        "--tasks", type=_positive, default=Plan(0).tasks, help="of a random run (%(default)s)"
    )
    parser.add_argument("--processes", type=_positive, default=Plan(0).processes, help="of it (%(default)s)")
    parser.add_argument("--trace", type=Path, help="write a line for each step of random runs to this file")
    given = parser.parse_args()
    names = {"random": (), "kills": LIVES, "orders": PAIRS}[given.what]
    if given.name and not any(given.name in name for name in names):
        parser.error(f"none of {given.what} says {given.name!r}" + "".join(f"\n  {name}" for name in names))
    act: dict[str, Callable[[argparse.Namespace], bool]] = {
        "random": _random,
        "kills": _kills,
        "orders": _orders,
    }
    held = act[given.what](given)
    sys.stdout.flush()
    os._exit(0 if held else 1)  # the processes of the world still wait


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _seeds(given: argparse.Namespace) -> Iterator[int]:
    end = time.monotonic() + 60 * given.minutes
    today = [] if "CI" in os.environ else [datetime.now(UTC).toordinal()]
    seeds = given.seed or [*SEEDS, *today]
    yield from seeds
    seed = seeds[-1]
    while time.monotonic() < end:
        seed += 1
        yield seed


def _random(given: argparse.Namespace) -> bool:
    held = True
    with ExitStack() as stack:
        file = stack.enter_context(given.trace.open("w")) if given.trace else None
        for seed in _seeds(given):
            began = time.process_time()
            faults = FAULTS if seed < SKEWED else replace(FAULTS, skew=60)
            plan = Plan(seed, given.tasks, given.processes, faults)
            outcome = run(plan, (lambda line: file.write(f"{line}\n")) if file else None)
            took = time.process_time() - began
            _say(f"seed {seed}: {outcome.calls} calls, {outcome.kills} kills, {took:.1f} s of the processor")
            if outcome.broken:
                held = False
                _say(f"BROKEN {outcome.about} {outcome.broken}")
                _say("looking for fewer tasks and faults, for some minutes ...")
                _tell(shrunk(outcome))
    return held


def _tell(outcome: Outcome) -> None:
    """The story of a broken promise: the lines about its task."""
    broken, plan = outcome.broken, outcome.plan
    told = rf"\b{outcome.about}\b| p\d+ (starts|stands still|is killed)|the broker is away"
    about = [line for line in outcome.story if re.search(told, line) and "workers.merge" not in line]
    _say("\n".join(about[-_LINES:]))
    _say(f"BROKEN {outcome.about} {broken}")
    faults = ", ".join(plan.faults.kinds) or "no faults"
    _say(f"with {plan.tasks} tasks, {plan.processes} processes and {faults}")


def _kills(given: argparse.Namespace) -> bool:
    return all(
        _exhaust(name, lambda life=life: kills(life), "kills")  # type: ignore[misc]
        for name, life in LIVES.items()
        if given.name in name
    )


def _orders(given: argparse.Namespace) -> bool:
    return all(
        _exhaust(name, lambda pair=pair: orders(pair), "orders")  # type: ignore[misc]
        for name, pair in PAIRS.items()
        if given.name in name
    )


def _exhaust(name: str, trials: Callable[[], Iterator[str]], what: str) -> bool:
    done: list[str] = []
    try:
        done.extend(trials())
    except Broken as broken:
        _say(f"{name}: BROKEN {broken}\nin trial {len(done)}, the next after {done[-1:]}")
        return False
    _say(f"{name}: {len(done)} {what}")
    return True
