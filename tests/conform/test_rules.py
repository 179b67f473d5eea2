"""Workers with a fault break its rule where real situations show it; test_verdicts.py breaks each rule."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from legacy_queue.conform import Report, conform
from legacy_queue.conform.rules import RULES, Rule
from tests.conform.bad_worker import FAULTS

BAD = Path(__file__).with_name("bad_worker.py")
NAMES = ("{provisionerId}/{workerType}", "{workerGroup}", "{workerId}")


def judged(rule: Rule) -> Report:
    protocol = "deployed" if "deployed" in rule.protocols else rule.protocols[0]
    return conform([sys.executable, str(BAD), rule.id, *NAMES, protocol], protocol, rules=[rule.id])


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """The report on each bad worker, by the rule that it breaks."""
    with ThreadPoolExecutor(len(FAULTS)) as threads:
        found = threads.map(judged, (rule for rule in RULES if rule.id in FAULTS))
        return {report.verdicts[0].rule.id: report for report in found}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("rule", FAULTS)
def test_a_worker_with_a_fault_breaks_its_rule(reports: dict[str, Report], rule: str) -> None:
    assert reports[rule].broken() == [rule], str(reports[rule])
