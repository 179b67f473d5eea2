"""scripts/bench runs to its end and counts. A person judges what it measures."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .processes import environment

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench.py"
CALLS = {"createTask", "claimTask", "reportCompleted"}
CLIENTS = (1, 4)  # of --quick
# side of a row: whose CPU is counted
SIDES = {
    "azurite": {"azurite", "load", "server"},
    "embedded": {"server", "load"},
    "floor/1": {"azurite", "load"},
    "memory": {"server", "load"},
}


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield value


def test_the_benchmark_counts_cycles_storage_operations_and_cpu(tmp_path: Path) -> None:
    options = ("--quick", "--only", "cycle,growth,holds", "--share", "1", "--json", str(tmp_path / "json"))
    with (tmp_path / "output").open("w") as output:
        ended = subprocess.run(
            [sys.executable, str(SCRIPT), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(TMPDIR=str(tmp_path)),
            check=False,
        )
    assert ended.returncode == 0, (tmp_path / "output").read_text()
    report = json.loads((tmp_path / "json").read_text())
    rows = {(row["side"], row["clients"]): row for row in report["rows"] if row["part"] == "cycle"}
    assert rows.keys() == {(side, clients) for side in SIDES for clients in CLIENTS}
    for (side, _), row in rows.items():
        assert row["count"] > 0
        assert row["perSecond"] > 0
        assert (row["storageOperations"] > 0) == ("azurite" in SIDES[side])
        assert all(number > 0 for number in numbers(row["latencyMs"]))
        assert row["cpuMs"].keys() == SIDES[side]
    assert rows["azurite", 1]["latencyMs"].keys() == {"cycle", *CALLS}
    ratios = {(ratio["of"], ratio["to"]): ratio for ratio in report["ratios"]}
    assert {
        ("azurite", "floor/1"),
        ("embedded", "memory"),
        ("20 tasks", "empty beside 20 tasks"),
    } <= ratios.keys()
    assert all(ratio["min"] > 0 for ratio in ratios.values())
    assert all(figure["pingMaxMs"] > 0 for name, figure in report["figures"].items() if "holds" in name)
