"""The least that scripts/bench can do: it completes and counts. What it measures is for a person to judge."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from .processes import environment

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench.py"
PARTS = ("--only", "cycle,calls,growth", "--group", "0", "--messages", "0")
CALLS = ("createTask", "claimTask", "reportCompleted")


def bench(folder: Path, *options: str) -> dict[str, Any]:
    """The JSON that it writes; each server's data are in the folder."""
    with (folder / "output").open("w") as output:
        found = subprocess.run(
            [sys.executable, str(SCRIPT), "--quick", "--json", str(folder / "json"), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(TMPDIR=str(folder)),
            check=False,
        )
    assert found.returncode == 0, (folder / "output").read_text()
    return dict(json.loads((folder / "json").read_text()))


def numbers(value: Any) -> Iterator[float]:
    """All that are in it."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from numbers(one)
    elif isinstance(value, int | float):
        yield value


def test_the_benchmark_on_azurite_counts_calls_storage_operations_and_cpu_of_server_and_floor(
    tmp_path: Path,
) -> None:
    found = bench(tmp_path, *PARTS, "--plot", str(tmp_path / "svg"))
    rows = {(row["part"], row["unit"], row["side"], row["clients"]): row for row in found["rows"]}
    sides = ("azurite", "floor/1", "floor/8")
    assert {("cycle", "cycle", side, clients) for side in sides for clients in (1, 4)} <= rows.keys()
    assert {
        ("calls", call, side, 1) for side in sides[:2] for call in (*CALLS, "claimWork", "status")
    } <= rows.keys()
    assert {("growth", "cycle", side, 4) for side in ("20 tasks", "empty beside 20 tasks")} <= rows.keys()
    for row in rows.values():
        assert row["count"] > 0
        assert row["perSecond"] > 0
        assert row["storageOperations"] > 0
        assert all(number > 0 for number in numbers(row["latencyMs"]))
        server = set() if row["side"].startswith("floor") else {"server"}
        assert row["cpuMs"].keys() == {"azurite", "load"} | server
    assert rows["cycle", "cycle", "azurite", 1]["latencyMs"].keys() == {"cycle", *CALLS}
    ratios = {(ratio["part"], ratio["unit"], ratio["of"], ratio["to"]) for ratio in found["ratios"]}
    assert {("cycle", "cycle", "azurite", "floor/8"), ("calls", "createTask", "azurite", "floor/1")} <= ratios
    assert all(ratio["min"] > 0 for ratio in found["ratios"])
    assert len(etree.parse(tmp_path / "svg").findall("{*}rect")) > len(sides)


def test_the_benchmark_on_memory_storage_counts_calls_and_cpu_and_no_storage_operations(
    tmp_path: Path,
) -> None:
    found = bench(tmp_path, "--only", "memory")
    assert [(row["side"], row["clients"]) for row in found["rows"]] == [("memory", 1), ("memory", 4)]
    for row in found["rows"]:
        assert row["count"] > 0
        assert row["cpuMs"].keys() == {"server", "load"}
        assert row["storageOperations"] == 0
