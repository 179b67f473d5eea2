"""The situations that a worker is brought into, so that it shows how it keeps the rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from legacy_queue.conform.log import MAX_REACTION_TIME, POLL, REPORTS, Log, spoken_protocol
from legacy_queue.conform.rules import ASKS, POLLS, PROTOCOLS, RULES, WAITED
from legacy_queue.conform.stage import POOL, Stage

Cause = Callable[[Stage], object]

# how long a script runs, in claims
_RECLAIMED = 1.15
_LOST = 1.5
_LONG = 1.8
_MAX_RECLAIMS = 3  # which show all that a longer script would


@dataclass(frozen=True)
class Situation:
    """``shows`` are the ids of rules that a worker of these protocols shows in it.

    ``cause`` returns when the worker has come through it, or the wait for that has ended.
    """

    name: str
    sentence: str
    shows: frozenset[str]
    protocols: tuple[str, ...]
    settings: Mapping[str, Any]
    cause: Cause

    def show(self, stage: Stage) -> None:
        """Cause it, and wait until each rule is shown, or one is broken and all scripts have ended, or the
        worker has gone on without showing them.
        """
        self.cause(stage)
        caused = stage.log()
        ends = [end for claim in caused.claims if (end := caused.script_end(claim.run))]
        over = max([caused.end, *ends]) + MAX_REACTION_TIME * caused.pace

        def is_shown(log: Log) -> bool:
            protocol = spoken_protocol(log.requests)
            rules = [rule for rule in RULES if rule.id in self.shows and protocol in rule.protocols]
            found = [[is_kept for is_kept, _ in rule.check(log)] for rule in rules]
            is_broken = log.end >= over and any(False in each for each in found)
            return all(found) or is_broken or log.has_gone_on(over)

        if not caused.stopped:
            stage.until(is_shown, claims=_LOST)


SITUATIONS: list[Situation] = []


def situation(
    shows: str, protocols: tuple[str, ...] = PROTOCOLS, **settings: Any
) -> Callable[[Cause], Cause]:
    """Declare the function below as the cause of a situation."""

    def declared(cause: Cause) -> Cause:
        name = cause.__name__.replace("_", "-")
        SITUATIONS.append(
            Situation(name, cause.__doc__ or "", frozenset(shows.split()), protocols, settings, cause)
        )
        return cause

    return declared


@situation(
    "claim-every-message claim-with-the-message claim-by-name keep-the-message delete-after-the-claim "
    "delete-only-after-the-claim encode-the-receipt delete-by-message-id run-every-claim report-the-result "
    "report-a-malformed-payload report-once upload-before-the-report poll-from-the-start"
)
def tasks(stage: Stage) -> None:
    """A task that completes, one that fails and one with a malformed payload."""
    kinds = [what for what in ("completes", "fails", "malformed") if what in stage.payloads]
    stage.start().until_reported(*map(stage.new_task, kinds))


@situation(
    "poll-in-order poll-from-the-start poll-after-a-pause poll-for-at-most-32 wait-for-the-answer",
    claim_work_wait="20s",
)
def idle(stage: Stage) -> None:
    """There is no work."""

    def has_come_round(log: Log) -> bool:
        waited = [
            claim
            for claim in log.of("claimWork")
            if claim.wire["ms"] >= WAITED or "isDisconnected" in claim.wire
        ]
        return len(waited) > 2 or len(log.of(POLL)) > 15

    stage.start().until(has_come_round)


@situation("pause-after-an-empty-answer", ASKS, claim_work_wait="0s")
def empty_answers(stage: Stage) -> None:
    """There is no work, and claimWork says so at once."""
    stage.start().until(lambda log: len(log.of("claimWork")) > 3)


@situation("reclaim-in-time reclaim-again use-the-newest-credentials")
def long_task(stage: Stage) -> None:
    """A task runs longer than its claim."""
    task_id = stage.new_task("runs", _LONG * stage.claim_period)

    if stage.start().until_claimed(task_id):
        stage.until(lambda log: len(log.of("reclaimTask")) >= _MAX_RECLAIMS or log.of(*REPORTS), claims=2)


@situation("keep-several-claims")
def several_tasks(stage: Stage) -> None:
    """Two tasks run longer than their claims, at once if the worker has the capacity."""
    tasks = [stage.new_task("runs", _RECLAIMED * stage.claim_period) for _ in range(2)]
    stage.start().until(lambda log: len(log.claims) > 1 or log.of(*REPORTS), claims=2)
    if len(stage.log().claims) > 1:
        stage.until_reported(*tasks, claims=2)


@situation("stop-on-a-409 go-on-after-a-lost-claim")
def canceled_task(stage: Stage) -> None:
    """A task is canceled while it runs."""
    task_id = stage.new_task("runs", _LOST * stage.claim_period)
    if stage.start().until_claimed(task_id):
        stage.cancel(task_id)
        stage.until(_has_lost_its_claim, claims=1)


@situation("stop-on-a-409 go-on-after-a-lost-claim")
def deadline(stage: Stage) -> None:
    """The deadline of a task passes while it runs."""
    stage.new_task("runs", _LOST * stage.claim_period, deadline=stage.claim_period / 2)
    stage.start().until(_has_lost_its_claim, claims=2)


def _has_lost_its_claim(log: Log) -> bool:
    return any(reclaim.was_refused for reclaim in log.of("reclaimTask"))


@situation("leave-a-refused-task do-not-repeat-after-a-4xx", POLLS)
def refused_claim(stage: Stage) -> None:
    """The task of a message was canceled before it is claimed."""
    stage.cancel(stage.new_task("completes"))
    stage.start().until(lambda log: log.of("claimTask"))


@situation("go-on-after-a-malformed-message look-at-the-dequeue-count", POLLS, poll_visibility="30s")
def malformed_message(stage: Stage) -> None:
    """A message that names no task was received eleven times already. Behind it is a task."""
    stage.put_message("poisoned", task_queue_id=POOL)
    for _ in range(11):
        stage.receive()
        stage.advance("30s")
    stage.start().until_reported(stage.new_task("completes"))


@situation("report-once", POLLS)
def doubled_message(stage: Stage) -> None:
    """The message of a task is delivered twice."""
    stage.fault(POLL, double=True, times=1)
    stage.start().until_reported(stage.new_task("completes"))


@situation("go-on-after-a-failed-delete", ("deployed",))
def stale_receipt(stage: Stage) -> None:
    """The receipt of a message is no longer good."""
    stage.fault(POLL, stale=True, times=1)
    stage.start().until_reported(stage.new_task("completes"))


@situation("renew-urls-in-time", POLLS)
def urls_that_expire(stage: Stage) -> None:
    """The signed URLs expire in eight seconds."""
    stage.fault("pollTaskUrls", sas="8s", times=1)
    stage.start().until(
        lambda log: len(log.of("pollTaskUrls")) > 1 or any(poll.status == 403 for poll in log.of(POLL))
    )


@situation("renew-urls-after-a-403", POLLS)
def forbidden_urls(stage: Stage) -> None:
    """The signed URLs are refused."""
    stage.fault(POLL, status=403, times=7)
    stage.start().until(lambda log: len(log.of("pollTaskUrls")) > 1 or len(log.of(POLL)) > 15)


@situation("repeat-after-a-5xx repeat-after-growing-pauses keep-the-message-after-a-5xx")
def failing_claims(stage: Stage) -> None:
    """A claim is answered with 503 four times."""
    stage.fault("claimTask", status=503, times=4)
    stage.fault("claimWork", status=503, times=4)
    stage.start().until_reported(stage.new_task("completes"))


@situation("repeat-after-a-5xx repeat-after-growing-pauses")
def failing_reports(stage: Stage) -> None:
    """A report is answered with 503 four times."""
    stage.fault("reportCompleted", status=503, times=4)
    stage.start().until_reported(stage.new_task("completes"))


@situation("do-not-repeat-after-a-4xx")
def refused_report(stage: Stage) -> None:
    """A report is refused."""
    stage.fault("reportCompleted", status=409, times=2)
    stage.new_task("completes")
    stage.start().until(lambda log: log.of("reportCompleted"))


def _lost_answer(calls: tuple[str, ...], claims: float, stage: Stage) -> None:
    for call in calls:
        stage.fault(call, drop="after", times=1)
    stage.new_task("runs", max(timedelta(seconds=1), claims * stage.claim_period))
    stage.start().until(lambda log: any(lost.status == 0 for lost in log.of(*calls)), claims)


for _name, _calls, _claims in (
    ("claim", ("claimTask", "claimWork"), 0),
    ("reclaim", ("reclaimTask",), _RECLAIMED),
    ("report", ("reportCompleted",), 0),
    ("artifact", ("createArtifact",), 0),
):
    _cause = partial(_lost_answer, _calls, _claims)
    _sentence = f"The answer to a {_name} gets lost."
    SITUATIONS.append(
        Situation(f"lost-{_name}", _sentence, frozenset([f"repeat-a-lost-{_name}"]), PROTOCOLS, {}, _cause)
    )


@situation("report-a-shutdown")
def shutdown(stage: Stage) -> None:
    """The worker gets a SIGTERM while a task runs."""
    if stage.start().until_claimed(stage.new_task("runs", timedelta(minutes=5))):
        stage.until(lambda log: log.end > log.claims[0].request.ended + timedelta(seconds=1))
        stage.stop()


@situation("live-with-another-clock")
def clock(stage: Stage) -> None:
    """The queue's clock is ten minutes ahead of the worker's."""
    stage.advance("10m")
    stage.start().until_reported(stage.new_task("completes"))
