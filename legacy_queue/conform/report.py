"""The verdict on each rule, and the requests that prove it, as text, HTML, JSON and JUnit."""

import json
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, PackageLoader
from lxml import etree

from legacy_queue.conform.log import DELETE, POLL, UPLOAD, Log, Request
from legacy_queue.conform.rules import Rule
from legacy_queue.history.picture import STYLE, history_html, legend_html

HELD = "held"
BROKEN = "broken"
NOT_SHOWN = "not shown"
_MAX_EVIDENCE = 3  # findings that a verdict shows
_CALLS = {POLL: "GET messages", DELETE: "DELETE message", UPLOAD: "PUT artifact"}  # of signed URLs


@dataclass(frozen=True)
class Verdict:
    """The verdict on a rule. ``evidence`` has the requests that show it, and the situation of each."""

    rule: Rule
    verdict: str
    evidence: Sequence[tuple[str, Request]]

    @property
    def is_broken(self) -> bool:
        return self.verdict == BROKEN

    def to_wire(self) -> Mapping[str, Any]:
        evidence = []
        for situation, request in self.evidence:
            shown = {"situation": situation, "time": request.wire["time"], "call": request.call}
            names = ("status", "taskId", "runId", "priority")
            evidence.append(shown | {name: request.wire[name] for name in names if name in request.wire})
        return {
            "id": self.rule.id,
            "verdict": self.verdict,
            "demand": self.rule.demand,
            "sentence": self.rule.sentence,
            "source": self.rule.source,
            "evidence": evidence,
            **({"instead": self.rule.instead} if self.is_broken else {}),
        }


@dataclass(frozen=True)
class Report:
    """The verdicts on a worker.

    ``troubles`` has a sentence for each situation in which something went wrong. ``worker`` is the name of an
    observed worker. ``histories`` has answers of inspectTask by taskId.
    """

    protocol: str
    verdicts: Sequence[Verdict]
    seconds: float
    troubles: Sequence[str]
    worker: str = ""
    histories: Mapping[str, Any] = field(default_factory=dict)

    def held(self) -> bool:
        """Whether no rule is broken, and at least one was shown."""
        verdicts = {each.verdict for each in self.verdicts}
        return BROKEN not in verdicts and HELD in verdicts

    def broken(self) -> list[str]:
        """The ids of the broken rules."""
        return [each.rule.id for each in self.verdicts if each.is_broken]

    def pictures(self, verdict: Verdict) -> Mapping[str, str]:
        """What happened to the tasks that the requests of a verdict are about, as HTML, by taskId."""
        requests = [request for _, request in verdict.evidence]
        tasks = [request.wire.get("taskId", "") for request in requests]
        tasks += [task_id for request in requests for task_id, _ in sorted(request.runs)]
        shown = [task_id for task_id in dict.fromkeys(tasks) if task_id in self.histories]
        return {each: history_html(self.histories[each], f"{verdict.rule.id}-{each}-") for each in shown}

    def to_wire(self) -> Mapping[str, Any]:
        """What ``--json`` prints and ``--report FILE.json`` writes."""
        return {
            **({"worker": self.worker} if self.worker else {}),
            "protocol": self.protocol,
            "seconds": round(self.seconds, 1),
            "rules": [each.to_wire() for each in self.verdicts],
            "troubles": [*self.troubles],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        width = max(len(each.rule.id) for each in self.verdicts)
        yield from [f"{self.worker}:"] if self.worker else []
        yield f"{'VERDICT':<10} DEMAND {'RULE':<{width}}  SHOWN IN"
        for each in self.verdicts:
            seen = ", ".join(dict.fromkeys(situation for situation, _ in each.evidence if situation))
            yield f"{each.verdict:<10} {each.rule.demand:<6} {each.rule.id:<{width}}  {seen}".rstrip()
        for each in self.verdicts:
            if each.is_broken:
                yield from ("", f"BROKEN {each.rule.id}: a worker {each.rule.demand} keep this rule.")
                said = f'The document says: "{each.rule.sentence}" ({each.rule.source})'
                yield textwrap.indent(textwrap.fill(said, 98), "  ")
                yield from (f"  {_words(*shown)}" for shown in each.evidence)
                yield f"  Instead: {each.rule.instead}"
        yield from ("", *self.troubles, self.summary)

    @property
    def summary(self) -> str:
        """``Protocol draft: 38 rules held, 1 broken, 2 not shown, in 41 s.``"""
        counts = Counter(each.verdict for each in self.verdicts)
        held = f"{counts[HELD]} {'rule' if counts[HELD] == 1 else 'rules'} held"
        words = f"{held}, {counts[BROKEN]} broken, {counts[NOT_SHOWN]} not shown"
        time = f", in {self.seconds:.0f} s" if self.seconds else ""  # 0 for an observed worker
        return f"Protocol {self.protocol}: {words}{time}."

    def to_junit(self) -> etree._Element:
        counts = Counter(each.verdict for each in self.verdicts)
        suite = etree.Element(
            "testsuite",
            name=", ".join(filter(None, ["legacy-queue conform", self.protocol, self.worker])),
            tests=str(len(self.verdicts)),
            failures=str(counts[BROKEN]),
            skipped=str(counts[NOT_SHOWN]),
            time=f"{self.seconds:.1f}",
        )
        for each in self.verdicts:
            case = etree.SubElement(suite, "testcase", classname=each.rule.source, name=each.rule.id)
            if each.is_broken:
                lines = [_words(*shown) for shown in each.evidence]
                failure = etree.SubElement(case, "failure", message=each.rule.instead)
                failure.text = "\n".join([each.rule.sentence, *lines])
            elif each.verdict == NOT_SHOWN:
                etree.SubElement(case, "skipped")
        if self.troubles:
            etree.SubElement(suite, "system-out").text = _printable("\n".join(self.troubles))
        return suite


def written(reports: Sequence[Report], suffix: str) -> str:
    """The text of a file whose name ends in ``.html``, ``.json`` or ``.xml`` (JUnit).

    Several reports are a list in JSON, and several suites in JUnit.
    """
    if suffix == ".html":
        environment = Environment(loader=PackageLoader("legacy_queue.conform", ""), autoescape=True)
        return environment.get_template("report.html").render(
            reports=reports, words=_words, history_style=STYLE, legend=legend_html()
        )
    if suffix == ".json":
        wires = [report.to_wire() for report in reports]
        return json.dumps(wires if len(wires) > 1 else wires[0], indent=2)
    suites = etree.Element("testsuites")
    suites.extend(report.to_junit() for report in reports)
    return etree.tostring(suites if len(suites) > 1 else suites[0], pretty_print=True, encoding="unicode")


def _printable(text: str) -> str:
    """The text with a replacement for each character that XML does not allow."""
    return "".join(each if each.isprintable() or each in "\t\n" else "\ufffd" for each in text)


def _words(situation: str, request: Request) -> str:
    """``12:34:56.789, situation idle: claimTask of <taskId>/0 was answered with 503.``

    For an observed worker, the sentence has the date in place of the situation.
    """
    day, time = request.wire["time"][:10], request.wire["time"][11:23]
    when = f"{time}, situation {situation}" if situation else f"{day} {time}"
    run = f" of {request.run[0]}/{request.run[1]}" if request.run else ""
    queue = f" of priority {request.wire['priority']}" if "priority" in request.wire and not run else ""
    answer = f"was answered with {request.status}" if request.status else "got no answer"
    return f"{when}: {_CALLS.get(request.call, request.call)}{run}{queue} {answer}."


def judge(
    protocol: str,
    logs: Sequence[Log],
    rules: Iterable[Rule],
    seconds: float = 0,
    chosen: Container[str] = (),
    troubles: Sequence[str] = (),
) -> Report:
    """The report on these logs. If rule ids are ``chosen``, it has only these rules and all broken rules."""
    verdicts = [_verdict(rule, logs) for rule in rules]
    shown = [each for each in verdicts if not chosen or each.rule.id in chosen or each.is_broken]
    return Report(protocol, shown, seconds, troubles)


def _verdict(rule: Rule, logs: Sequence[Log]) -> Verdict:
    found = [(log.situation, *finding) for log in logs for finding in rule.check(log)]
    broken = [each for each in found if not each[1]]
    shown = (broken or found)[:_MAX_EVIDENCE]
    verdict = BROKEN if broken else HELD if found else NOT_SHOWN
    return Verdict(
        rule, verdict, [(situation, request) for situation, _, requests in shown for request in requests]
    )
