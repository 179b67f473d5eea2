"""The situations that a worker is brought into, so that it shows how it keeps the rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from legacy_queue.conform.log import MAX_REACTION_TIME, POLL, REPORTS, Log, spoken_protocol
from legacy_queue.conform.observed_queue import POOL, ObservedQueue
from legacy_queue.conform.rules import ASKS, POLLS, PROTOCOLS, RULES, WAITED

Cause = Callable[[ObservedQueue], object]

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

    def show(self, queue: ObservedQueue) -> None:
        """Cause it, and wait until each rule is shown, or one is broken and all scripts have ended, or the
        worker has gone on without showing them.
        """
        self.cause(queue)
        caused = queue.log()
        ends = [end for claim in caused.claims if (end := caused.script_end(claim.run))]
        over = max([caused.end, *ends]) + MAX_REACTION_TIME * caused.pace

        def is_shown(log: Log) -> bool:
            protocol = spoken_protocol(log.requests)
            rules = [rule for rule in RULES if rule.id in self.shows and protocol in rule.protocols]
            found = [[is_kept for is_kept, _ in rule.check(log)] for rule in rules]
            is_broken = log.end >= over and any(False in each for each in found)
            return all(found) or is_broken or log.has_gone_on(over)

        if not caused.stopped:
            queue.until(is_shown, claims=_LOST)


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
def tasks(queue: ObservedQueue) -> None:
    """A task that completes, one that fails and one with a malformed payload."""
    kinds = [what for what in ("completes", "fails", "malformed") if what in queue.payloads]
    queue.start().until_reported(*map(queue.new_task, kinds))


@situation(
    "poll-in-order poll-from-the-start poll-after-a-pause poll-for-at-most-32 wait-for-the-answer",
    claim_work_wait="20s",
)
def idle(queue: ObservedQueue) -> None:
    """There is no work."""

    def has_come_round(log: Log) -> bool:
        asked = [claim.wire for claim in log.of("claimWork")]
        waited = [wire for wire in asked if wire["ms"] >= WAITED or "isDisconnected" in wire]
        return len(waited) > 2 or len(log.of(POLL)) > 15

    queue.start().until(has_come_round)


@situation("pause-after-an-empty-answer", ASKS, claim_work_wait="0s")
def empty_answers(queue: ObservedQueue) -> None:
    """There is no work, and claimWork says so at once."""
    queue.start().until(lambda log: len(log.of("claimWork")) > 3)


@situation("reclaim-in-time reclaim-again use-the-newest-credentials")
def long_task(queue: ObservedQueue) -> None:
    """A task runs longer than its claim."""
    task_id = queue.new_task("runs", _LONG * queue.claim_period)

    if queue.start().until_claimed(task_id):
        queue.until(lambda log: len(log.of("reclaimTask")) >= _MAX_RECLAIMS or log.of(*REPORTS), claims=2)


@situation("keep-several-claims")
def several_tasks(queue: ObservedQueue) -> None:
    """Two tasks run longer than their claims, at once if the worker has the capacity."""
    tasks = [queue.new_task("runs", _RECLAIMED * queue.claim_period) for _ in range(2)]
    queue.start().until(lambda log: len(log.claims) > 1 or log.of(*REPORTS), claims=2)
    if len(queue.log().claims) > 1:
        queue.until_reported(*tasks, claims=2)


@situation("stop-on-a-409 go-on-after-a-lost-claim")
def canceled_task(queue: ObservedQueue) -> None:
    """A task is canceled while it runs."""
    task_id = queue.new_task("runs", _LOST * queue.claim_period)
    if queue.start().until_claimed(task_id):
        queue.cancel(task_id)
        queue.until(_has_lost_its_claim, claims=1)


@situation("stop-on-a-409 go-on-after-a-lost-claim")
def deadline(queue: ObservedQueue) -> None:
    """The deadline of a task passes while it runs."""
    queue.start().until(lambda log: log.requests)  # before the start of a slow worker it would pass unseen
    queue.new_task("runs", _LOST * queue.claim_period, deadline=queue.claim_period / 2)
    queue.until(_has_lost_its_claim, claims=2)


def _has_lost_its_claim(log: Log) -> bool:
    return any(reclaim.was_refused for reclaim in log.of("reclaimTask"))


@situation("leave-a-refused-task do-not-repeat-after-a-4xx", POLLS)
def refused_claim(queue: ObservedQueue) -> None:
    """The task of a message was canceled before it is claimed."""
    queue.cancel(queue.new_task("completes"))
    queue.start().until(lambda log: log.of("claimTask"))


@situation("go-on-after-a-malformed-message look-at-the-dequeue-count", POLLS, poll_visibility="30s")
def malformed_message(queue: ObservedQueue) -> None:
    """A message that names no task was received eleven times already. Behind it is a task."""
    queue.put_message("poisoned", task_queue_id=POOL)
    for _ in range(11):
        queue.receive()
        queue.advance("30s")
    queue.start().until_reported(queue.new_task("completes"))


@situation("report-once", POLLS)
def doubled_message(queue: ObservedQueue) -> None:
    """The message of a task is delivered twice."""
    queue.fault(POLL, double=True, times=1)
    queue.start().until_reported(queue.new_task("completes"))


@situation("go-on-after-a-failed-delete", ("deployed",))
def stale_receipt(queue: ObservedQueue) -> None:
    """The receipt of a message is no longer good."""
    queue.fault(POLL, stale=True, times=1)
    queue.start().until_reported(queue.new_task("completes"))


@situation("renew-urls-in-time", POLLS)
def urls_that_expire(queue: ObservedQueue) -> None:
    """The signed URLs expire in eight seconds."""
    queue.fault("pollTaskUrls", sas="8s", times=1)
    queue.start().until(
        lambda log: len(log.of("pollTaskUrls")) > 1 or any(poll.status == 403 for poll in log.of(POLL))
    )


@situation("renew-urls-after-a-403", POLLS)
def forbidden_urls(queue: ObservedQueue) -> None:
    """The signed URLs are refused."""
    queue.fault(POLL, status=403, times=7)
    queue.start().until(lambda log: len(log.of("pollTaskUrls")) > 1 or len(log.of(POLL)) > 15)


@situation("repeat-after-a-5xx repeat-after-growing-pauses keep-the-message-after-a-5xx")
def failing_claims(queue: ObservedQueue) -> None:
    """A claim is answered with 503 four times."""
    queue.fault("claimTask", status=503, times=4)
    queue.fault("claimWork", status=503, times=4)
    queue.start().until_reported(queue.new_task("completes"))


@situation("repeat-after-a-5xx repeat-after-growing-pauses")
def failing_reports(queue: ObservedQueue) -> None:
    """A report is answered with 503 four times."""
    queue.fault("reportCompleted", status=503, times=4)
    queue.start().until_reported(queue.new_task("completes"))


@situation("do-not-repeat-after-a-4xx")
def refused_report(queue: ObservedQueue) -> None:
    """A report is refused."""
    queue.fault("reportCompleted", status=409, times=2)
    queue.new_task("completes")
    queue.start().until(lambda log: log.of("reportCompleted"))


def _lost_answer(calls: tuple[str, ...], claims: float, queue: ObservedQueue) -> None:
    for call in calls:
        queue.fault(call, drop="after", times=1)
    queue.new_task("runs", max(timedelta(seconds=1), claims * queue.claim_period))
    queue.start().until(lambda log: any(lost.status == 0 for lost in log.of(*calls)), claims)


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
def shutdown(queue: ObservedQueue) -> None:
    """The worker gets a SIGTERM while a task runs."""
    if queue.start().until_claimed(queue.new_task("runs", timedelta(minutes=5))):
        queue.until(lambda log: log.end > log.claims[0].request.ended + timedelta(seconds=1))
        queue.stop()


@situation("live-with-another-clock")
def clock(queue: ObservedQueue) -> None:
    """The queue's clock is ten minutes ahead of the worker's."""
    queue.advance("10m")
    queue.start().until_reported(queue.new_task("completes"))
