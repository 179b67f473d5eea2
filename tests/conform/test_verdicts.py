"""What the verdict on a log is.

Every request has a given time, so no verdict depends on the speed of a machine.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.conform import observe
from legacy_queue.conform.log import Log, Request
from legacy_queue.conform.report import judge
from legacy_queue.conform.rules import RULES
from legacy_queue.domain.times import format_time

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
POOL = "my-provisioner/my-pool"


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def entry(seconds: float, endpoint: str, status: int = 200, **fields: Any) -> dict[str, Any]:
    """A request that was answered at this second, 10 ms after it came."""
    path = fields.get("path", f"/{endpoint}/{fields.get('taskId')}")
    known = {"time": format_time(at(seconds)), "ms": 10, "method": "POST", "taskQueueId": POOL}
    known["begun"] = format_time(at(seconds - fields.get("ms", 10) / 1000))
    return {**known, "endpoint": endpoint, "status": status, **fields, "path": path}


def about(seconds: float, endpoint: str, status: int = 200, task: str = "a", **fields: Any) -> dict[str, Any]:
    return entry(seconds, endpoint, status, taskId=task, runId=0, **fields)


def claims(until: float, *tasks: str) -> list[dict[str, Any]]:
    return [{"taskId": task, "runId": 0, "takenUntil": format_time(at(until))} for task in tasks]


def claimed(seconds: float, until: float, task: str = "a", worker: str = "one", **fields: Any) -> Any:
    fields |= {"workerGroup": "g", "workerId": worker, "claims": claims(until, task)}
    return about(seconds, "claimTask", task=task, **fields)


def reclaimed(seconds: float, until: float, task: str = "a", **fields: Any) -> dict[str, Any]:
    return about(seconds, "reclaimTask", task=task, claims=claims(until, task), **fields)


def poll(seconds: float, priority: int = 1, **fields: Any) -> dict[str, Any]:
    return entry(seconds, "azure.receive", path=f"/queue-{priority}/messages", **fields)


def received(seconds: float, task: str = "a", **fields: Any) -> dict[str, Any]:
    message = {"messageId": f"m-{task}", "taskId": task, "runId": 0, "dequeueCount": 1}
    return poll(seconds, messages=[message], taskId=task, runId=0, **fields)


def asked(seconds: float, worker: str = "one", ms: float = 10, **fields: Any) -> dict[str, Any]:
    return entry(seconds, "claimWork", workerGroup="g", workerId=worker, **{"ms": ms, **fields})


def requests(entries: Sequence[Mapping[str, Any]]) -> list[Request]:
    ordered = sorted(entries, key=lambda each: str(each["time"]))
    return [Request({"sequence": number, **each}) for number, each in enumerate(ordered, 1)]


def verdict(rule: str, *entries: Mapping[str, Any], end: float = 1000, **more: Any) -> str:
    """The verdict of this rule on a worker that sent these requests in a situation."""
    log = Log(requests(entries), at(end), **{"situation": "situation", **more})
    [found] = judge("deployed", [log], [each for each in RULES if each.id == rule]).verdicts
    return found.verdict


def lasts(seconds: float) -> dict[str, timedelta]:
    return {"a": timedelta(seconds=seconds)}


# A log that breaks each rule


def deleted(seconds: float, message: str = "m-a", **fields: Any) -> dict[str, Any]:
    return entry(seconds, "azure.delete", path=f"/queue-1/messages/{message}", **fields)


def named_no_task(dequeued: int) -> dict[str, Any]:
    return poll(0, messages=[{"messageId": "m", "dequeueCount": dequeued}])


TASK, LATER = claimed(0, 600), poll(20)
COMPLETED = about(2, "reportCompleted")
RUNS = claims(600, "a")
LEFT: dict[str, Any] = {"isDisconnected": True, "claims": []}
OLD_CREDENTIALS = f"a/until/{int(at(600).timestamp())}"
MALFORMED = about(2, "reportException", reportedReason="internal-error")
URLS = entry(0, "pollTaskUrls", expires=format_time(at(10)))

# for each rule, the requests of a worker that breaks it, and other facts about the situation
BROKEN: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "poll-in-order": ([poll(0, 7), poll(1, 5)], {}),
    "poll-from-the-start": ([poll(0, 1), poll(2, 6)], {}),
    "poll-after-a-pause": ([poll(0, 1), poll(0.1, 7)], {}),
    "poll-for-at-most-32": ([poll(0, status=400, code="OutOfRangeQueryParameterValue")], {}),
    "renew-urls-in-time": ([URLS, LATER], {}),
    "renew-urls-after-a-403": ([poll(0, 7, status=403), poll(1, 7)], {}),
    "claim-every-message": ([received(0), LATER], {}),
    "claim-with-the-message": ([received(0), claimed(1, 600)], {}),
    "claim-by-name": ([TASK], {"worker": "g/another"}),
    "leave-a-refused-task": ([about(0, "claimTask", 409), about(1, "reclaimTask")], {}),
    "go-on-after-a-malformed-message": ([named_no_task(1)], {}),
    "keep-the-message": ([received(0), claimed(1, 600), deleted(2)], {}),
    "delete-after-the-claim": ([received(0), claimed(1, 600), about(20, "reportCompleted")], {}),
    "delete-only-after-the-claim": ([received(0), deleted(1)], {}),
    "keep-the-message-after-a-5xx": ([received(0), about(1, "claimTask", 503), deleted(2)], {}),
    "encode-the-receipt": ([deleted(0, status=400, reason="... Invalid pop receipt format")], {}),
    "delete-by-message-id": ([received(0), deleted(1, "another")], {}),
    "go-on-after-a-failed-delete": ([received(0), deleted(2, status=400)], {}),
    "look-at-the-dequeue-count": ([named_no_task(11), LATER], {}),
    "run-every-claim": ([asked(0, claims=RUNS), asked(700)], {}),
    "wait-for-the-answer": ([asked(5, ms=5000, **LEFT), asked(10, ms=5000, **LEFT), asked(15)], {}),
    "pause-after-an-empty-answer": ([asked(0), asked(0.1)], {}),
    "reclaim-in-time": ([TASK], {}),
    "reclaim-again": ([TASK, reclaimed(400, 900)], {}),
    "keep-several-claims": ([TASK, claimed(1, 601, "b"), reclaimed(500, 1100)], {}),
    "use-the-newest-credentials": (
        [TASK, reclaimed(500, 1100), about(700, "createArtifact", clientId=OLD_CREDENTIALS)],
        {},
    ),
    "stop-on-a-409": ([TASK, about(5, "reclaimTask", 409), about(125, "reportCompleted", 409)], {}),
    "go-on-after-a-lost-claim": ([TASK, about(5, "reclaimTask", 409)], {}),
    "live-with-another-clock": ([TASK, LATER], {"situation": "clock"}),
    "repeat-after-a-5xx": ([about(1, "claimTask", 503), LATER], {}),
    "repeat-after-growing-pauses": (
        [about(2 * n, "reportFailed", 503 if n < 4 else 200) for n in range(5)],
        {},
    ),
    "do-not-repeat-after-a-4xx": ([TASK, about(3, "reportFailed", 409), about(4, "reportFailed")], {}),
    "repeat-a-lost-claim": ([about(1, "claimTask", 0, fault="f"), LATER], {}),
    "repeat-a-lost-reclaim": ([TASK, about(1, "reclaimTask", 0, fault="f"), LATER], {}),
    "repeat-a-lost-report": ([TASK, about(1, "reportFailed", 0, fault="f"), LATER], {}),
    "repeat-a-lost-artifact": ([TASK, about(1, "createArtifact", 0, fault="f"), LATER], {}),
    "report-the-result": ([TASK, COMPLETED], {"tasks": {"a": "fails"}}),
    "report-a-malformed-payload": ([TASK, MALFORMED], {"tasks": {"a": "malformed"}}),
    "report-a-shutdown": ([TASK], {"stopped": at(5)}),
    "report-once": ([TASK, COMPLETED, about(3, "reportCompleted")], {}),
    "upload-before-the-report": ([TASK, COMPLETED, about(3, "createArtifact")], {}),
}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_each_rule_can_be_broken(rule: str) -> None:
    """test_conform.py shows that the sample worker keeps each rule."""
    calls, more = BROKEN[rule]
    assert verdict(rule, *calls, **more) == "broken"


def test_with_an_empty_log_no_rule_is_shown() -> None:
    report = judge("draft", [Log([], BEGIN)], RULES)
    assert {each.verdict for each in report.verdicts} == {"not shown"}
    assert not report.held()


# Workers whose claims are short


def generic_worker(claim: float, script: float) -> list[dict[str, Any]]:
    """generic-worker reclaims three minutes before takenUntil if this is at least 30 seconds away.

    If not, never.
    """
    now, until = 0.0, claim
    calls = [claimed(now, until)]
    while until - 180 - now >= 30 and until - 180 < script:
        now, until = until - 180, until - 180 + claim
        calls.append(reclaimed(now, until))
    return [*calls, about(script, "reportCompleted", 200 if until > script else 409), poll(script + 1)]


# Requests that may still come


def lost(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [claimed(0, 12), about(5, "reclaimTask", 409), *more]


SHORT = [claimed(0, 12), reclaimed(8, 20), about(22, "reportCompleted", 409), poll(23)]
RUNS_ON = lost(about(125, "createArtifact"), about(126, "reportCompleted", 409))  # like scriptworker 3.1.2
EARLIER = [claimed(0, 12), about(3, "reportCompleted"), about(5, "reclaimTask", 409), poll(130)]
REFUSED, REPEATED = about(3, "reportCompleted", 409), about(4, "reportCompleted")
UPLOAD, REPORT = about(2.1, "upload"), about(2.2, "reportCompleted", ms=500)
LOST_REPORT = about(1, "reportFailed", 0, fault="f")
UNDELETED = [received(0), claimed(1, 600), about(2, "azure.delete", 400)]
DONE = [*UNDELETED, about(301, "reportCompleted")]
DOUBLED = [TASK, REFUSED, claimed(3.5, 12), REPEATED]
FIRST_ANSWER = asked(0.4, ms=400)
LEAVES = asked(5, ms=5000, **LEFT)
WHOLE, HASTY = asked(20, ms=20_000, status=200), [LEAVES, asked(10, ms=5000, **LEFT), asked(15)]


def repeated(*times: float) -> list[dict[str, Any]]:
    """A report that is repeated at these times, and succeeds the last time."""
    calls = [about(each, "reportFailed", 503) for each in times[:-1]]
    return [*calls, about(times[-1], "reportFailed")]


# For each rule: what the worker does, the verdict, its requests, when the log ends and how long the script
# lasts
AWAITED: dict[str, list[tuple[str, str, list[dict[str, Any]], float, float | None]]] = {
    "reclaim-in-time": [
        ("it reclaims minutes before the end", "not shown", generic_worker(12, 22), 1000, None),
    ],
    "reclaim-again": [
        ("it has a long claim", "held", generic_worker(220, 400), 1000, None),
        ("it has reclaimed a short claim once", "broken", SHORT, 1000, None),
        ("a slow machine made it late", "not shown", [*SHORT, reclaimed(21, 33)], 1000, None),
    ],
    "stop-on-a-409": [
        ("its result comes two minutes later", "broken", RUNS_ON, 1000, 120),
        ("its script may still run", "not shown", lost(poll(6), poll(90)), 110, 120),
        ("its script has ended", "held", lost(poll(6), poll(130)), 1000, 120),
        ("the end of its script is not known", "not shown", lost(poll(6), poll(900)), 1000, None),
        ("it reclaims after the report", "not shown", EARLIER, 1000, 3),
    ],
    "do-not-repeat-after-a-4xx": [
        ("a doubled message repeats its claim", "held", DOUBLED, 1000, None),
        ("it repeats its report", "broken", [TASK, REFUSED, REPEATED], 1000, None),
    ],
    "upload-before-the-report": [
        ("its upload begins beside the report", "broken", [TASK, UPLOAD, REPORT], 1000, None),
        ("its upload begins before", "held", [TASK, about(1.6, "upload"), REPORT], 1000, None),
    ],
    "claim-every-message": [
        ("it may be slow", "not shown", [received(0)], 20, 0),
        ("it has gone on", "broken", [received(0), poll(20)], 21, 0),
    ],
    "repeat-a-lost-report": [
        ("it may be slow", "not shown", [TASK, LOST_REPORT], 20, 0),
        ("it has gone on", "broken", [TASK, LOST_REPORT, poll(20)], 21, 0),
    ],
    "go-on-after-a-failed-delete": [
        ("it is busy with its script", "not shown", UNDELETED, 290, 300),
        ("it has just reported", "not shown", DONE, 320, 300),
        ("it is silent", "broken", DONE, 340, 300),
        ("it asks for work", "held", [*DONE, poll(302)], 303, 300),
    ],
    "repeat-after-growing-pauses": [
        ("each pause is longer", "held", repeated(0, 1, 3, 7, 15), 1000, None),
        ("none is", "broken", repeated(0, 2, 4, 6, 8), 1000, None),
        ("its first of one second took nine", "not shown", repeated(0, 9, 11, 15, 23), 1000, None),
        ("its last of two seconds took nine", "not shown", repeated(0, 2, 4, 6, 15), 1000, None),
    ],
    "pause-after-an-empty-answer": [
        ("it pauses for a second", "held", [FIRST_ANSWER, asked(1.4, ms=400)], 1000, None),
        ("a slow answer hides the pause", "not shown", [FIRST_ANSWER, asked(0.92, ms=400)], 1000, None),
        ("it has no pause", "broken", [FIRST_ANSWER, asked(0.82, ms=400)], 1000, None),
    ],
    "wait-for-the-answer": [
        ("it was stopped", "not shown", [LEAVES], 1000, None),
        ("it was stopped later", "held", [WHOLE, asked(30, ms=5000, **LEFT), asked(40)], 1000, None),
        (
            "it was hasty, and has waited once",
            "broken",
            [*HASTY, WHOLE],
            1000,
            None,
        ),
    ],
}


@pytest.mark.parametrize("rule", AWAITED)
def test_a_rule_is_broken_only_if_the_missing_request_can_no_longer_come(rule: str) -> None:
    """Short claims, scripts that run on and slow machines never make a healthy worker look broken."""
    for why, found, calls, end, script in AWAITED[rule]:
        more = {} if script is None else {"lasts": lasts(script)}
        assert verdict(rule, *calls, end=end, **more) == found, why


def test_a_worker_that_was_slow_to_start_is_given_more_time() -> None:
    calls = [received(0), poll(20)]
    assert verdict("claim-every-message", *calls, end=21, started=at(-2)) == "broken"
    assert verdict("claim-every-message", *calls, end=21, started=at(-25)) == "not shown"


UNDER_WAY = about(5.2, "createArtifact", ms=400)  # this call was under way when the 409 came


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([UNDER_WAY], "held"),
        ([about(5.1, "createArtifact")], "not shown"),
        ([about(6, "createArtifact")], "not shown"),
        ([about(4.9, "createArtifact"), about(5.1, "upload")], "not shown"),
        ([about(9, "createArtifact")], "broken"),
        ([about(5.03, "createArtifact"), about(5.05, "createArtifact")], "broken"),
        ([UNDER_WAY, about(5.25, "upload")], "broken"),
        ([about(5.03, "reportFailed", 409)], "broken"),
    ],
)
def test_after_a_409_one_call_of_another_thread_is_forgiven_but_not_its_next_step(
    calls: list[dict[str, Any]], found: str
) -> None:
    """scriptworker 63.6.1 creates, uploads and reports 16 ms after the 409."""
    assert verdict("stop-on-a-409", *lost(*calls, poll(130)), lasts=lasts(120)) == found
    [rules] = observed(*lost(*calls, poll(130))).values()
    assert (rules["stop-on-a-409"] == "broken") == (found == "broken")


def test_a_slow_round_of_polls_hides_the_pause_and_the_verdict_is_not_shown() -> None:
    """generic-worker begins a round of polls at most once a second, however long the polls take."""

    def found(begin: float, *, polls_take: float) -> str:
        again = poll(begin + polls_take, 7, ms=1000 * polls_take)
        polls = [poll((8 - queue) * polls_take, queue, ms=1000 * polls_take) for queue in range(7, 0, -1)]
        return verdict("poll-after-a-pause", *polls, again)

    assert (found(1, polls_take=0.01), found(0.1, polls_take=0.01)) == ("held", "broken")
    assert found(1, polls_take=0.12) == "not shown"
    assert found(0.85, polls_take=0.12) == "not shown", "a worker without a pause looks the same"
    received_last = [poll(0, 2), received(0.1), claimed(0.2, 600), poll(0.3, 1), poll(1.1, 7)]
    assert verdict("poll-after-a-pause", *received_last) == "held"


def test_a_worker_with_several_tasks_can_be_silent_about_one_while_its_script_runs() -> None:
    def two(short: float) -> str:
        calls = [
            asked(0, claims=claims(12, "a", "b")),
            about(1, "reportCompleted", task="b"),
            asked(2, claims=claims(20, "c")),
            about(3, "reportCompleted", task="c"),
            asked(15),
        ]
        scripts = {**lasts(short), "b": timedelta(0), "c": timedelta(0)}
        return verdict("run-every-claim", *calls, lasts=scripts)

    assert (two(300), two(0)) == ("held", "broken")


# Observed workers

EXPIRES = format_time(at(3600))


def observed(*entries: dict[str, Any], first: int = 1) -> dict[str, dict[str, str]]:
    """The verdicts on each worker, by the worker's name and protocol."""
    journal = [{**each.wire, "sequence": each.wire["sequence"] + first - 1} for each in requests(entries)]
    return {
        f"{report.worker.partition(' ')[0]} {report.protocol}": {
            each.rule.id: each.verdict for each in report.verdicts
        }
        for report in observe(journal)
    }


def broken(verdicts: Mapping[str, Mapping[str, str]]) -> list[str]:
    return [rule for rules in verdicts.values() for rule, found in rules.items() if found == "broken"]


def test_each_worker_of_a_pool_is_judged_separately_and_by_its_own_protocol() -> None:
    """One worker asks for two tasks and runs them for a long time. The other polls."""
    found = observed(
        *(asked(second, clientId="modern") for second in range(21, 60, 20)),
        asked(1, claims=claims(1200, "b", "c"), clientId="modern"),
        reclaimed(600, 1200, "b", clientId="modern"),
        *(about(700, "reportCompleted", task=task, clientId="modern") for task in "bc"),
        entry(0, "pollTaskUrls", clientId="old", expires=EXPIRES),
        *(poll(2 + second / 7, 7 - second, expires=EXPIRES) for second in range(6)),
        received(3, expires=EXPIRES),
        claimed(4, 1204, worker="two", clientId="old"),
        deleted(5, status=204, taskId="a", runId=0, expires=EXPIRES),
        about(9, "reportCompleted", clientId="old"),
        poll(10, 7, expires=EXPIRES),
    )
    assert found.keys() == {"g/one claimwork", "g/two deployed"}
    assert broken(found) == []
    assert found["g/one claimwork"]["run-every-claim"] == "held"
    assert {found["g/two deployed"][rule] for rule in ("delete-after-the-claim", "poll-in-order")} == {"held"}


def test_polls_that_could_come_from_two_workers_are_ignored() -> None:
    """Both workers have the same client, and one of them has claimed nothing."""

    def of(urls: float, *seconds: float) -> list[dict[str, Any]]:
        until = format_time(at(3600 + urls))
        polls = [poll(second, 7 - number % 7, expires=until) for number, second in enumerate(seconds)]
        return [entry(urls, "pollTaskUrls", clientId="both", expires=until), *polls]

    idle = of(1, *(number / 2 for number in range(4, 40)))
    busy = of(2, *(0.1 + number / 2 for number in range(6, 12)))
    work = [received(6.2, expires=format_time(at(3602))), claimed(6.4, 1206, clientId="both")]
    found = observed(*idle, *busy, *work, about(9, "reportCompleted", clientId="both"))
    assert broken(found) == []
    assert found["g/one deployed"]["claim-every-message"] == "held"


def test_an_observed_worker_whose_polls_the_server_cannot_see_is_not_judged_by_them() -> None:
    """With Azure, Azure itself answers the polls."""
    found = observed(
        entry(0, "pollTaskUrls", clientId="c", expires=EXPIRES),
        claimed(1, 1200, clientId="c", messageId="m", receipt="r", signature="s"),
        about(2, "reclaimTask", 409, clientId="c"),
    )
    [rules] = found.values()
    shown = {rule for rule, each in rules.items() if each != "not shown"}
    assert shown == {"claim-by-name", "reclaim-in-time"}


def test_requests_that_were_dropped_from_the_journal_accuse_no_worker() -> None:
    calls = [
        entry(0, "pollTaskUrls", clientId="c", expires=EXPIRES),
        poll(0.5, 7, expires=EXPIRES),
        claimed(1, 1200, clientId="c", messageId="m", receipt="r", signature="s"),
        deleted(2, "m", status=204, expires=EXPIRES),
        about(3, "claimTask", 409, task="b", workerGroup="g", workerId="one", clientId="c", signature="s"),
        about(4, "reclaimTask", task="b", clientId="c"),
        about(5, "reportCompleted", task="b", clientId="c"),
    ]
    assert broken(observed(*calls, first=5000)) == []
