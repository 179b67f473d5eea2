"""Each rule is broken by the worker with its fault, and by no other: the proof that the rules can fail."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legacy_queue.testing.conform import Report, conform
from legacy_queue.testing.conform.rules import RULES, Rule
from tests.conform.bad_worker import FAULTS

BAD = Path(__file__).with_name("bad_worker.py")
NAMES = ("{provisionerId}/{workerType}", "{workerGroup}", "{workerId}")
IDS = [rule.id for rule in RULES]
AT_ONCE = 12
NOT_SHOWN = ("reclaim-in-time",)  # with short claims: see test_verdicts.py


def judged(rule: Rule) -> Report:
    protocol = "deployed" if "deployed" in rule.protocols else rule.protocols[0]
    return conform([sys.executable, str(BAD), rule.id, *NAMES, protocol], protocol, rules=[rule.id])


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """The report on each bad worker, by the rule that it breaks."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(IDS, threads.map(judged, RULES), strict=True))


def test_there_is_a_bad_worker_for_each_rule() -> None:
    assert FAULTS.keys() == {*IDS}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("rule", IDS)
def test_a_worker_with_a_fault_breaks_its_rule_alone(reports: dict[str, Report], rule: str) -> None:
    report = reports[rule]
    assert report.broken() == [rule] * (rule not in NOT_SHOWN), str(report)
    assert not report.held()
