"""The situations that conform creates. In each of them a worker shows whether it keeps certain rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from legacy_queue.conform.log import MAX_REACTION_TIME, POLL, REPORTS, Log, spoken_protocol
from legacy_queue.conform.observed_queue import POOL, ObservedQueue
from legacy_queue.conform.rules import ASKS, POLLS, PROTOCOLS, RULES, WAITED

Cause = Callable[[ObservedQueue], object]

# how long a script runs, in multiples of the time that a claim lasts
_RECLAIMED = 1.15
_LOST = 1.5
_LONG = 1.8
_MAX_RECLAIMS = 3  # a longer script would show nothing more


@dataclass(frozen=True)
class Situation:
    """One situation, such as a lost answer.

    ``shows`` has the ids of the rules that a worker of one of the ``protocols`` shows here. ``cause``
    creates the situation. It returns once the worker has reacted, or after the longest time this may take.
    """

    name: str
    sentence: str
    shows: frozenset[str]
    protocols: tuple[str, ...]
    settings: Mapping[str, Any]
    cause: Cause

    def show(self, queue: ObservedQueue) -> None:
        """Create the situation, and wait until the worker has shown how it keeps the rules.

        The wait also ends if a rule is broken and all scripts have ended, or if the worker went on without
        showing the rules.
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
    """Declare a situation that the decorated function creates. Its docstring says what happens."""

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
    """There are three tasks: one completes, one fails, and one has a malformed payload."""
    kinds = [what for what in ("completes", "fails", "malformed") if what in queue.payloads]
    queue.start().until_reported(*map(queue.new_task, kinds))


@situation(
    "poll-in-order poll-from-the-start poll-after-a-pause poll-for-at-most-32 wait-for-the-answer",
    claim_work_wait="20s",
)
def idle(queue: ObservedQueue) -> None:
    """There is no work."""

    def has_gone_round(log: Log) -> bool:
        asked = [claim.wire for claim in log.of("claimWork")]
        waited = [wire for wire in asked if wire["ms"] >= WAITED or "isDisconnected" in wire]
        return len(waited) > 2 or len(log.of(POLL)) > 15

    queue.start().until(has_gone_round)


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
    """Two tasks run longer than their claims. They run at the same time if the worker has the capacity."""
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
    queue.start().until(lambda log: log.requests)  # else the deadline passes before a slow worker starts
    queue.new_task("runs", _LOST * queue.claim_period, deadline=queue.claim_period / 2)
    queue.until(_has_lost_its_claim, claims=2)


def _has_lost_its_claim(log: Log) -> bool:
    return any(reclaim.was_refused for reclaim in log.of("reclaimTask"))


@situation("leave-a-refused-task do-not-repeat-after-a-4xx", POLLS)
def refused_claim(queue: ObservedQueue) -> None:
    """A task is canceled before the worker claims it. Its message is still there."""
    queue.cancel(queue.new_task("completes"))
    queue.start().until(lambda log: log.of("claimTask"))


@situation("go-on-after-a-malformed-message look-at-the-dequeue-count", POLLS, poll_visibility="30s")
def malformed_message(queue: ObservedQueue) -> None:
    """A message names no task, and was received eleven times before. There is a task behind it."""
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
    """The receipt of a message is no longer valid."""
    queue.fault(POLL, stale=True, times=1)
    queue.start().until_reported(queue.new_task("completes"))


@situation("renew-urls-in-time", POLLS)
def urls_that_expire(queue: ObservedQueue) -> None:
    """The signed URLs expire after eight seconds."""
    queue.fault("pollTaskUrls", sas="8s", times=1)
    queue.start().until(
        lambda log: len(log.of("pollTaskUrls")) > 1 or any(poll.status == 403 for poll in log.of(POLL))
    )


@situation("renew-urls-after-a-403", POLLS)
def forbidden_urls(queue: ObservedQueue) -> None:
    """The signed URLs are refused with 403."""
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
    """A report is refused with 409."""
    queue.fault("reportCompleted", status=409, times=2)
    queue.new_task("completes")
    queue.start().until(lambda log: log.of("reportCompleted"))


def _lost_answer(calls: tuple[str, ...], claims: float, queue: ObservedQueue) -> None:
    for call in calls:
        queue.fault(call, drop="after", times=1)
    queue.new_task("runs", max(timedelta(seconds=1), claims * queue.claim_period))
    queue.start().until(lambda log: any(lost.status == 0 for lost in log.of(*calls)), claims)


for _name, _what, _calls, _claims in (
    ("claim", "a claim", ("claimTask", "claimWork"), 0),
    ("reclaim", "a reclaim", ("reclaimTask",), _RECLAIMED),
    ("report", "a report", ("reportCompleted",), 0),
    ("artifact", "createArtifact", ("createArtifact",), 0),
):
    _cause = partial(_lost_answer, _calls, _claims)
    _sentence = f"The answer to {_what} gets lost."
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
