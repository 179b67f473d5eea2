"""What scripts/bench has measured, as rows of figures: printed, and kept for the JSON."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench_load import Sample

_BOUND = 0.9  # of a core: more, and the load generator is what limits the rate

Row = dict[str, Any]


class Report:
    """``rows``: a side's figures, for a number of clients; ``ratios``: of two sides, round by round."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.ratios: list[Row] = []
        self.figures: dict[str, Any] = {}  # of the waiting polls

    def add(self, part: str, samples: Sequence[Sample]) -> None:
        """A row for each unit, number of clients and side, of all rounds together; print them."""
        groups: dict[tuple[str, int, str], list[Sample]] = {}
        for sample in samples:
            groups.setdefault((sample.unit, sample.clients, sample.side), []).append(sample)
        print(f"\n{part:<10}{'unit':<16}{'clients':>7}  {'side':<36}{'a second':>9}{'p50 ms':>9}{'p99 ms':>9}"
              f"{'storage':>9}  CPU ms for each")  # fmt: skip
        for group in groups.values():
            row = _row(part, group)
            self.rows.append(row)
            _print(row)

    def compare(self, part: str, samples: Sequence[Sample], side: str, other: str, figure: str) -> None:
        """The side's ``rate`` or ``p50`` divided by the other's in the same round; print and keep it.

        Also the servers' CPU, of all rounds together: on a machine that others use it says more.
        """
        of, to = ([s for s in samples if s.side == name] for name in (side, other))
        for unit, clients in dict.fromkeys((s.unit, s.clients) for s in of):
            pairs = zip(_those(of, unit, clients), _those(to, unit, clients), strict=True)
            found = sorted(_figure(a, figure) / _figure(b, figure) for a, b in pairs)
            ratio = {
                "part": part, "unit": unit, "clients": clients, "figure": figure, "of": side, "to": other,
                "min": found[0], "median": statistics.median(found), "max": found[-1], "rounds": len(found),
            }  # fmt: skip
            costs = [_server_cpu(_those(each, unit, clients)) for each in (of, to)]
            if all(costs):
                ratio["serverCpu"] = costs[0] / costs[1]
            self.ratios.append(ratio)
            print(
                f"{part:<10}{unit:<16}{clients:>7}  {figure} of {side} / {other}: "
                f"{ratio['min']:.2f} / {ratio['median']:.2f} / {ratio['max']:.2f}"
                + (f"; server CPU {ratio['serverCpu']:.2f}" if all(costs) else "")
            )


def _those(samples: Sequence[Sample], unit: str, clients: int) -> list[Sample]:
    return [sample for sample in samples if (sample.unit, sample.clients) == (unit, clients)]


def _server_cpu(samples: Sequence[Sample]) -> float:
    """Seconds for each."""
    return sum(sample.cpu.get("server", 0) for sample in samples) / sum(sample.count for sample in samples)


def _figure(sample: Sample, figure: str) -> float:
    return sample.rate if figure == "rate" else statistics.median(sample.latencies[sample.unit])


def _row(part: str, samples: Sequence[Sample]) -> Row:
    first, count = samples[0], sum(sample.count for sample in samples)
    rates = [sample.rate for sample in samples]
    operations: Counter[str] = sum((sample.operations for sample in samples), Counter())
    by_verb: Counter[str] = Counter()
    for name, number in operations.items():
        by_verb[name.split(" ")[0]] += number
    cpu = {name: sum(sample.cpu[name] for sample in samples) for name in first.cpu}
    cpu["load"] = sum(sample.load for sample in samples)
    load_cores = cpu["load"] / sum(sample.seconds for sample in samples)
    calls = len(first.latencies) - 1 or 1  # of a cycle: its three
    return {
        "part": part,
        "unit": first.unit,
        "side": first.side,
        "clients": first.clients,
        "count": count,
        "perSecond": statistics.median(rates),
        "callsPerSecond": calls * statistics.median(rates),
        "rounds": rates,
        "latencyMs": {
            name: _percentiles([seconds for sample in samples for seconds in sample.latencies[name]])
            for name in first.latencies
        },
        "storageOperations": operations.total() / count,
        "storageOperationsByVerb": {name: number / count for name, number in by_verb.most_common()},
        "storageOperationsByName": {name: number / count for name, number in operations.most_common()},
        "cpuMs": {name: 1000 * seconds / count for name, seconds in cpu.items()},
        "loadCores": load_cores,
        "isLoadBound": load_cores > _BOUND,
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(1000 * second for second in seconds)
    return {"p50": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)]}


def _print(row: Row) -> None:
    own = row["latencyMs"][row["unit"]]
    cpu = ", ".join(f"{name} {ms:.2f}" for name, ms in row["cpuMs"].items())
    print(
        f"{row['part']:<10}{row['unit']:<16}{row['clients']:>7}  {row['side']:<36}{row['perSecond']:>9.1f}"
        f"{own['p50']:>9.1f}{own['p99']:>9.1f}{row['storageOperations']:>9.1f}  {cpu}"
    )
    calls = {name: times for name, times in row["latencyMs"].items() if name != row["unit"]}
    if calls:
        each = ", ".join(f"{name} {times['p50']:.1f} / {times['p99']:.1f}" for name, times in calls.items())
        print(f"{'':<35}{row['callsPerSecond']:.0f} calls a second; p50 / p99 ms: {each}")
    if row["storageOperations"]:
        verbs = ", ".join(f"{verb} {n:.2f}" for verb, n in row["storageOperationsByVerb"].items())
        print(f"{'':<35}storage: {verbs}")
    if row["isLoadBound"]:
        print(f"{'':<35}the load generator is the limit: it used {row['loadCores']:.2f} cores")
