"""Run the simulated world and check every promise.

``day``, the default, makes random runs with the seeds of the tests and of the day, ``usual`` only those of
the tests. ``kills`` repeats scenarios, and kills a process at every point where a kill makes a difference.
``orders`` repeats two concurrent calls in every order. If a promise is broken, it prints what happened to the
task or group, and ends with exit code 1.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click

from tests.simulation.kills_and_orders import PAIRS, SCENARIOS, kills, orders
from tests.simulation.promises import Broken
from tests.simulation.random_run import SEEDS, Outcome, Plan, faults_of, run, shrunk

_OF_A_DAY = 7  # the number of seeds of a day
_LINES = 80  # the last lines of a trace, which are printed


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("what", nargs="?", default="day", choices=("day", "usual", "kills", "orders"))
    parser.add_argument(
        "name", nargs="?", default="", help="only scenarios or pairs whose name has this text"
    )
    parser.add_argument("--seed", type=int, action="append", help="run only this seed; repeatable")
    parser.add_argument("--minutes", type=float, default=0.0, help="then go on with more seeds for this long")
    parser.add_argument(
        "--tasks", type=int, default=Plan(0).tasks, help="tasks in a random run (%(default)s)"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=Plan(0).processes,
        help="server processes in a random run (%(default)s)",
    )
    parser.add_argument("--trace", type=Path, help="write each step of the random runs to this file")
    given = parser.parse_args()
    if given.what == "kills":
        known: set[tuple[str, ...]] = set()
        held = _try_all(given, SCENARIOS, lambda name: kills(SCENARIOS[name], known))
    elif given.what == "orders":
        held = _try_all(given, PAIRS, lambda name: orders(PAIRS[name]))
    else:
        held = _random(given)
    sys.stdout.flush()
    os._exit(0 if held else 1)  # not sys.exit, because the processes of the world still wait


def _seeds(given: argparse.Namespace) -> Iterator[int]:
    end = time.monotonic() + 60 * given.minutes
    first = datetime.now(UTC).timetuple().tm_yday * _OF_A_DAY
    of_the_day = range(first, first + _OF_A_DAY) if given.what == "day" else ()
    seeds: Sequence[int] = given.seed or (*SEEDS, *of_the_day)
    yield from seeds
    seed = seeds[-1]
    while time.monotonic() < end:
        seed += 1
        yield seed


def _random(given: argparse.Namespace) -> bool:
    broken: dict[int, bool] = {}
    with ExitStack() as stack:
        file = stack.enter_context(given.trace.open("w")) if given.trace else None
        for seed in _seeds(given):
            began = time.process_time()
            plan = Plan(seed, given.tasks, given.processes, faults_of(seed))
            outcome = run(plan, (lambda line: file.write(f"{line}\n")) if file else None)
            took = time.process_time() - began
            click.echo(f"seed {seed}: {outcome.calls} calls, {outcome.kills} kills, {took:.1f} s of CPU")
            broken[seed] = outcome.broken is not None
            if outcome.broken:
                click.echo(f"BROKEN {outcome.about} {outcome.broken}")
                if "MUTANT_UNDER_TEST" in os.environ:  # for scripts/mutants this is enough
                    break
                click.echo("looking for fewer tasks and faults that still break it, for some minutes ...")
                _show_trace(shrunk(outcome))
    again = "".join(f" --seed {seed}" for seed, is_broken in broken.items() if is_broken)
    click.echo(f"{list(broken.values()).count(False)} of {len(broken)} seeds broke nothing")
    if again:
        click.echo(f"to repeat the others: scripts/simulate{again}")
    return not again


def _show_trace(outcome: Outcome) -> None:
    """Print the lines of the trace about the broken promise's task."""
    broken, plan = outcome.broken, outcome.plan
    relevant = rf"\b{outcome.about}\b| p\d+ (starts|stands still|is killed)|the broker is away"
    about = [line for line in outcome.trace if re.search(relevant, line) and "workers.merge" not in line]
    click.echo("\n".join(about[-_LINES:]))
    click.echo(f"BROKEN {outcome.about} {broken}")
    faults = ", ".join(plan.faults.kinds) or "no faults"
    click.echo(f"with {plan.tasks} tasks, {plan.processes} processes and {faults}")


def _try_all(given: argparse.Namespace, names: Iterable[str], trials: Callable[[str], Iterator[str]]) -> bool:
    chosen = [name for name in names if given.name in name]
    for name in chosen:
        done: list[str] = []
        try:
            done.extend(trials(name))
        except Broken as broken:
            click.echo(f"{name}: BROKEN {broken}\nin trial {len(done)}, the next after {done[-1:]}")
            return False
        click.echo(f"{name}: {len(done)} {given.what}")
    return bool(chosen)
