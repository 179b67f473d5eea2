"""``legacy-queue conform``: the sample worker keeps every rule of each protocol.

Also the reports and the command.
"""

import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from lxml import etree

from legacy_queue.cli.commands import commands
from legacy_queue.conform import FORMS, Report, conform, written
from legacy_queue.conform.rules import RULES
from legacy_queue.testing import LegacyQueue

pytestmark = pytest.mark.processes

PROGRAM = [sys.executable, "-m", "legacy_queue"]
NAMES = ["--worker-group", "{workerGroup}", "--worker-id", "{workerId}", "{provisionerId}/{workerType}"]
WORKER = [*PROGRAM, "worker", "--capacity", "2", *NAMES]
GENERIC_NAMES = ["{provisionerId}/{workerType}", "{workerGroup}", "{workerId}"]
# generic-worker reclaims three minutes before takenUntil, and panics if the claim is too short for that
GENERIC_WORKER = """
import base64, os, subprocess, sys
from datetime import UTC, datetime, timedelta
base64.encodestring = base64.encodebytes
from taskcluster import Queue
def queue(client_id, token, certificate=None):
    own = {"clientId": client_id, "accessToken": token, "certificate": certificate}
    return Queue({"baseUrl": os.environ["LEGACY_QUEUE_BASE_URL"], "credentials": own})
pool, group, worker_id = sys.argv[1:]
polling = queue(os.environ["TASKCLUSTER_CLIENT_ID"], os.environ["TASKCLUSTER_ACCESS_TOKEN"])
while True:
    name = {"workerGroup": group, "workerId": worker_id, "tasks": 1}
    for claim in polling.claimWork(*pool.split("/"), name)["tasks"]:
        if datetime.fromisoformat(claim["takenUntil"]) - datetime.now(UTC) < timedelta(minutes=3, seconds=25):
            sys.exit(2)
        failed = subprocess.run(claim["task"]["payload"]["command"][0]).returncode
        own = queue(*(claim["credentials"][key] for key in ("clientId", "accessToken", "certificate")))
        run = claim["status"]["taskId"], str(claim["runId"])
        own.reportFailed(*run) if failed else own.reportCompleted(*run)
"""


def sample_worker(protocol: str) -> list[str]:
    return [*WORKER, "--protocol", protocol]


def run(*words: str, **variables: str) -> Result:
    return CliRunner().invoke(commands, ["conform", *words], env=variables)


def on_generic_worker(program: str, *words: str) -> Result:
    asked = ["--payload", "generic-worker", "--rule", "report-the-result", *words]
    return run(*asked, "--", sys.executable, "-W", "ignore", "-c", program, *GENERIC_NAMES)


# The test of docs/how-to/conform.md judges the sample worker by every rule of the draft protocol. So here
# only the other rules are tested, and ALSO: rules that the worker might break with claimWork although it
# keeps them when it polls.
ALL = [rule.id for rule in RULES if "deployed" in rule.protocols]
DRAFT = {rule.id for rule in RULES if "draft" in rule.protocols}
ALSO = {"claimwork": {"stop-on-a-409", "keep-several-claims", "repeat-a-lost-claim"}, "deployed": set[str]()}
ASKED = {
    protocol: [r.id for r in RULES if protocol in r.protocols and (r.id in also or r.id not in DRAFT)]
    for protocol, also in ALSO.items()
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """One report on the sample worker for each protocol."""

    def report(protocol: str) -> Report:
        return conform(sample_worker(protocol), protocol, rules=ASKED[protocol])

    with ThreadPoolExecutor() as threads:
        return dict(zip(ASKED, threads.map(report, ASKED), strict=True))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ASKED)
def test_the_sample_worker_keeps_every_rule(reports: dict[str, Report], protocol: str) -> None:
    report = reports[protocol]
    assert {each.verdict for each in report.verdicts} == {"held"}, str(report)
    assert report.held()
    assert [each.rule.id for each in report.verdicts] == ASKED[protocol]


def test_a_report_has_the_same_verdicts_in_each_format(reports: dict[str, Report]) -> None:
    report = reports["claimwork"]
    ids = [each.rule.id for each in report.verdicts]
    wire: Any = json.loads(written([report], ".json"))
    assert [rule["id"] for rule in wire["rules"]] == ids
    assert {rule["verdict"] for rule in wire["rules"]} == {"held"}
    assert all(rule["sentence"] and rule["source"] and rule["evidence"] for rule in wire["rules"])
    suite = etree.fromstring(written([report], ".xml"))
    assert [case.get("name") for case in suite] == ids
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "0")
    html = written([report], ".html")
    assert all(f"<code>{each}</code>" in html for each in ids)
    assert "http" not in html  # the report loads nothing
    assert all(line.startswith("held ") for line in str(report).splitlines()[1 : len(ids) + 1])


def test_the_report_on_a_broken_rule_shows_what_happened_to_its_tasks(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    worker = GENERIC_WORKER.replace("own.reportFailed(*run) if failed else ", "")
    ended = on_generic_worker(worker, "--report", str(file))
    assert ended.exit_code == 1, ended.output
    root = etree.HTML(file.read_text())
    [evidence] = re.findall("reportCompleted of ([^/]+)/0 was answered with 200", ended.stdout)
    [picture] = root.iterfind(".//details/ol")
    assert evidence in picture.get("aria-label", "")
    targets = [f"#{row.get('id')}" for row in picture if row.get("id")]
    assert targets == [link.get("href") for link in picture.iterfind(".//a")]


def test_a_rule_that_needs_a_missing_payload_is_reported_as_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"command": ["true"]}')
    rules = ["--rule", "report-the-result", "--rule", "report-a-shutdown"]
    ended = run("--payload", str(file), *rules, "--", *WORKER)
    assert ended.exit_code == 0, ended.output
    verdicts = [line.split("  ")[0] for line in ended.stdout.splitlines()[1:3]]
    assert verdicts == ["held", "not shown"]
    assert "shutdown: you gave no payload 'runs' for its task" in ended.stdout
    file.write_text('{"runs": {"command": ["sleep", "{seconds}"]}}')
    assert "expected a payload for a task that completes" in run("--payload", str(file), "--", "true").stderr


@pytest.mark.timeout(900)
@pytest.mark.parametrize("also", [["report-the-result"], pytest.param(ALL, marks=pytest.mark.nightly)])
def test_the_report_on_scriptworker_is_the_one_in_the_documents(also: list[str]) -> None:
    """scriptworker 3.1.2 itself breaks these rules. The nightly tests judge it by all rules."""
    page = Path("docs/reference/conform.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| scriptworker 3.1.2")]
    broken, not_shown = (re.findall("`(.+?)`", cell) for cell in row.split("|")[3:5])
    program = Path("examples/scriptworker/worker.py").resolve()
    names = ["{provisionerId}", "{workerType}", "{workerGroup}", "{workerId}"]
    command = [sys.executable, "-W", "ignore", str(program), *names]
    report = conform(command, payloads=FORMS["scriptworker"], rules=[*broken, *also])
    assert report.broken() == broken, str(report)
    left = [each.rule.id for each in report.verdicts if each.verdict == "not shown"]
    assert left == [rule for rule in not_shown if rule in also], str(report)


def test_a_worker_that_uses_the_root_url_speaks_todays_protocol() -> None:
    """The rules for claimWork apply to it."""
    command = [*sample_worker("claimwork"), "--root-url", "{rootUrl}"]
    report = conform(command, rules=["claim-by-name", "run-every-claim"])
    assert (report.protocol, report.held(), len(report.verdicts)) == ("today", True, 2)


def test_generic_worker_gets_claims_that_are_long_enough_to_reclaim() -> None:
    ended = on_generic_worker(GENERIC_WORKER)
    assert ended.exit_code == 0, ended.output


def test_each_observed_worker_has_a_report_and_all_reports_are_in_one_file(
    legacy_queue: LegacyQueue, tmp_path: Path
) -> None:
    for worker, protocol in (("a", "draft"), ("b", "claimwork")):
        legacy_queue.create_task()
        claim = legacy_queue.claim(protocol=protocol, worker_id=worker)  # type: ignore[arg-type]
        claim.report("completed")  # type: ignore[union-attr]
    variables = {**legacy_queue.env, "LEGACY_QUEUE_ROOT_URL": legacy_queue.root_url}
    workers = [f"test-group/{each} of test-provisioner/test-worker-type" for each in "ab"]
    for suffix in (".json", ".xml", ".html"):
        file = tmp_path / f"report{suffix}"
        ended = run("--observe", "--report", str(file), **variables)
        assert ended.exit_code == 0, ended.output
        assert all(worker in file.read_text() for worker in workers)
    reports = json.loads((tmp_path / "report.json").read_text())
    protocols = [(each["worker"], each["protocol"]) for each in reports]
    assert protocols == [(workers[0], "draft"), (workers[1], "claimwork")]
    assert [suite.tag for suite in etree.parse(tmp_path / "report.xml").getroot()] == ["testsuite"] * 2
    assert all(f"{worker}:" in ended.stdout.splitlines() for worker in workers)
    verdicts = [line.split(maxsplit=2) for line in ended.stdout.splitlines() if line.startswith("held")]
    assert ["held", "must", "claim-with-the-message"] in verdicts
    assert json.loads(run("--observe", "--json", **variables).stdout) == reports
    legacy_queue.create_task(worker_type="other")
    legacy_queue.claim("other", protocol="draft")
    refused = run("--observe", **variables)
    assert refused.exit_code == 2
    assert "test-provisioner/other, test-provisioner/test-worker-type" in refused.stderr
    assert run("--observe", "--pool", "test-provisioner/other", **variables).exit_code == 0
    legacy_queue.advance("1m")
    refused = run("--observe", "--pool", "test-provisioner/other", **variables)
    assert (refused.exit_code, "was moved, but its workers' was not" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--observe", "--", "true"], "expected the command that starts your worker after --, or --observe"),
        (["--report", "no-such-folder/a.html", "--", "true"], "cannot be written: No such file or directory"),
        (["--report", "{pipe}", "--", "true"], "cannot be written: No such device or address"),
        (
            ["--rule", "report-twice", "--", "true"],
            "'report-twice': expected a rule; the nearest is 'report-once'",
        ),
        (["--", "no-such-command"], "Error: 'no-such-command' cannot be started: No such"),
        (["--torture", "1", "--", "true"], "--torture and --steps were removed"),
        (["--steps", "9", "--", "true"], "--torture and --steps were removed"),
        (["--protocol", "draft", "--rule", "encode-the-receipt", "--", "true"], "draft, has no rule"),
        (["--rule", "report-once", "--", "false"], "the worker ended by itself: exit code 1"),
        (
            ["--protocol", "claimwork", "--rule", "report-once", "--", *WORKER],
            "the worker speaks the protocol draft, not",
        ),
    ],
)
def test_if_a_command_cannot_be_judged_the_error_says_why(
    tmp_path: Path, words: list[str], said: str
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.html")
    ended = run(*[word.replace("{pipe}", str(pipe)) for word in words])
    assert ended.exit_code == 2
    assert said in ended.stderr
