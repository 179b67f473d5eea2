"""The rules of conform: each is a sentence of the protocol's documents, and a function that checks a log.

The docstring of such a function has two paragraphs. The first quotes the sentence. The second says what a
worker should do instead if it breaks the rule. The function yields ``(True, requests)`` for each place of the
log where the worker keeps the rule, and ``(False, requests)`` for each place where it breaks it.

A log can end before the worker has done what a rule asks for. So a request counts as missing only if the log
shows that the worker went on without it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from inspect import cleandoc
from itertools import pairwise

from legacy_queue.conform.log import (
    DELETE,
    MAX_REACTION_TIME,
    POLL,
    QUIET_TIME,
    REPORTS,
    RUN_CALLS,
    UPLOAD,
    ClaimPeriod,
    Log,
    ReceivedMessage,
    Request,
)
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.times import parse_time

Findings = Iterator[tuple[bool, list[Request]]]
Check = Callable[[Log], Findings]

DRAFT = "Queue - Worker Interaction (draft)"
DEPLOYED = "Queue - Worker Interaction"
CLAIMWORK = "Queue-Worker Interaction"

POLLS = ("draft", "deployed")
ASKS = ("claimwork", "today")
PROTOCOLS = (*POLLS, *ASKS)

_LAST = len(PRIORITIES) - 1
_A_SECOND_OR_SO = timedelta(seconds=0.5)
_WHOLE_SECOND = timedelta(seconds=1)  # a signed URL expires at a whole second, up to one second early
_NOT_ENCODED = "Invalid pop receipt format"  # Azure's reason if a + of the receipt arrived as a space
_REPEATED = ("claimTask", "claimWork", "createArtifact", *REPORTS)
WAITED = 1500  # milliseconds: a claimWork that takes longer has waited for work
_BRIEFLY = 500  # milliseconds: a claimWork that takes less was answered at once
_GROWING = 1.5  # pauses grow if the third and the fourth are this many times as long as the first
_FAILURES = 4  # so many failures in a row show whether the pauses grow


@dataclass(frozen=True)
class Rule:
    """A sentence that is quoted from the document ``source``, and the function that checks it.

    ``demand`` is "must" if the document demands it, and "should" if it recommends it or if it follows from a
    recommendation. ``instead`` says what a worker that breaks the rule should do.
    """

    id: str
    demand: str
    protocols: tuple[str, ...]
    source: str
    sentence: str
    instead: str
    check: Check


RULES: list[Rule] = []


def rule(demand: str, protocols: tuple[str, ...], source: str) -> Callable[[Check], Check]:
    """Declare a rule whose check is the decorated function, and add it to ``RULES``."""

    def declared(check: Check) -> Check:
        sentence, instead = (" ".join(part.split()) for part in cleandoc(check.__doc__ or "").split("\n\n"))
        name = check.__name__.replace("_", "-")
        RULES.append(Rule(name, demand, protocols, source, sentence, instead, check))
        return check

    return declared


def _followed(
    log: Log, request: Request, following: list[Request], *others: str, within: timedelta = QUIET_TIME
) -> Findings:
    """Judge a request that something must follow. The rule is kept if ``following`` has a request.

    It is broken if nothing follows, and the worker makes one of the ``others`` (by default any call) after
    the time ``within``, or falls silent.
    """
    if following or log.has_gone_on(request.ended + within * log.pace, *others):
        yield bool(following), [request, *following[:1]]


def _not_followed(
    log: Log, request: Request, following: list[Request], within: timedelta = QUIET_TIME
) -> Findings:
    """Judge a request that nothing may follow. The rule is broken if ``following`` has a request.

    It is kept if the worker goes on without one after the time ``within``.
    """
    if following or log.has_gone_on(request.ended + within * log.pace):
        yield not following, [request, *following[:1]]


def _late_calls(log: Log, lost: Request) -> tuple[list[Request], bool]:
    """The calls about a run after ``lost``, the answer that says that its claim is lost.

    The second value says whether these calls show that the worker goes on with the run. A call that began
    before the answer does not count. One later call may come from another thread that did not know the answer
    yet. A second one shows it, and so does a report, a call after the quiet time, or the upload of an
    artifact that was created after the answer.
    """
    late = [call for call in log.about(lost.run, *RUN_CALLS) if call.follows(lost)]
    created = [each for each in log.about(lost.run, "createArtifact") if each.ended > lost.ended]
    is_decided = any(
        call.call in REPORTS
        or (call.call == UPLOAD and any(map(call.follows, created)))
        or call.begun > lost.ended + QUIET_TIME * log.pace
        for call in late
    )
    return late, is_decided or len(late) > 1


def _paused(begin: Request, last: Request, following: Request) -> Findings:
    """Judge the pause between two rounds. ``following`` is the first request of the second round.

    The rule is kept if the worker paused for half a second or more. It is broken if the rounds began less
    than half a second apart. Anything else shows nothing: the first round took long, as on a slow machine.
    """
    has_paused = following.begun - last.ended >= _A_SECOND_OR_SO
    if has_paused or following.begun - begin.begun < _A_SECOND_OR_SO:
        yield has_paused, [last, following]


def _asks_again(log: Log, request: Request) -> Findings:
    """The rule is kept if the worker asks for work later, however late. It is broken if it falls silent."""
    asks = log.after(request, POLL, "claimWork")
    if asks or log.is_silent:
        yield bool(asks), [request, *asks[:1]]


# Polling


def _place(poll: Request) -> int:
    """The position of the polled queue in the answer of pollTaskUrls, from 0."""
    queue = str(poll.wire["path"]).partition("/messages")[0]  # a refused poll has no priority
    return _LAST + 1 - int(queue.rpartition("-")[2])


def _after_empty_polls(log: Log) -> Iterator[tuple[Request, Request]]:
    """Each poll that found nothing, with the next poll if it used the same URLs."""
    for poll, following in pairwise(log.of(POLL, "pollTaskUrls")):
        if poll.call == following.call == POLL and poll.was_done and not poll.messages:
            yield poll, following


@rule("must", POLLS, DRAFT)
def poll_in_order(log: Log) -> Findings:
    """The poll URLs must be polled in the order they are given.

    If a queue has no messages, poll the next queue of the list.
    """
    for poll, following in _after_empty_polls(log):
        if _place(poll) != _LAST:
            yield _place(following) == _place(poll) + 1, [poll, following]


@rule("must", POLLS, DEPLOYED)
def poll_from_the_start(log: Log) -> Findings:
    """If at end of the array, the worker should sleep a second or so, and start polling from the start of the
    list.

    After the last queue, and after each task, start again with the first queue. It has the highest
    priority.
    """
    for poll, following in _after_empty_polls(log):
        if _place(poll) == _LAST:
            yield _place(following) == 0, [poll, following]
    for claim in log.claims:
        polls = log.after(claim.request, POLL)
        for report in log.reports(claim.run)[:1]:
            if polls and polls[0].follows(report):  # else it polled for another task before it reported
                yield _place(polls[0]) == 0, [report, polls[0]]


@rule("should", POLLS, DEPLOYED)
def poll_after_a_pause(log: Log) -> Findings:
    """If at end of the array, the worker should sleep a second or so, and start polling from the start of the
    list.

    If all queues were empty, sleep for a second before you poll again.
    """
    judged = dict(_after_empty_polls(log))
    begin: Request | None = None  # the first poll of the round
    for poll, following in pairwise(log.of(POLL)):
        begin = begin or poll
        is_over = _place(poll) == _LAST and not poll.messages
        if is_over and poll in judged:
            yield from _paused(begin, poll, following)
        if is_over or _place(following) < _place(poll):
            begin = None


@rule("must", POLLS, DEPLOYED)
def poll_for_at_most_32(log: Log) -> Findings:
    """The parameter N is the maximum number of messages desired, N can be up to 32.

    Poll with a numofmessages between 1 and 32.
    """
    for poll in log.of(POLL):
        yield poll.wire.get("code") != "OutOfRangeQueryParameterValue", [poll]


@rule("must", POLLS, DRAFT)
def renew_urls_in_time(log: Log) -> Findings:
    """When a worker want a task it will call `queue.pollTaskUrls(provisionerId, workerType)` which then
    returns an array of URLs we can poll.

    Call pollTaskUrls again before the time in `expires` of its last answer.
    """
    for urls in log.of("pollTaskUrls"):
        if urls.was_done:
            expires = parse_time(urls.wire["expires"]) - _WHOLE_SECOND
            calls = log.after(urls, POLL, "pollTaskUrls")
            newer = [call for call in calls if call.call != POLL and call.begun < expires]
            late = [call for call in calls if call.begun >= expires > urls.ended]
            if newer or late:
                yield bool(newer) or late[0].call != POLL, [urls, *(newer or late)[:1]]


@rule("should", POLLS, DRAFT)
def renew_urls_after_a_403(log: Log) -> Findings:
    """When a worker want a task it will call `queue.pollTaskUrls(provisionerId, workerType)` which then
    returns an array of URLs we can poll.

    If a signed URL is answered with 403, call pollTaskUrls before the next round of polls.
    """
    for poll in log.of(POLL):
        later = log.after(poll, POLL, "pollTaskUrls")
        next_round = [other for other in later if other.call != POLL or _place(other) <= _place(poll)]
        if poll.status == 403 and next_round:
            yield next_round[0].call == "pollTaskUrls", [poll, next_round[0]]


# Messages


def _claims_of(log: Log, message: ReceivedMessage) -> list[Request]:
    """The claims of the message's run that began after the message was received."""
    return [claim for claim in log.after(message.poll, "claimTask") if claim.run == message.run]


def _has_all_messages(log: Log) -> bool:
    """Whether the log has every message that the worker received. Polls of Azure itself are in no log."""
    return log.is_whole and bool(log.of(POLL))


def _deletes(log: Log, message: ReceivedMessage) -> list[Request]:
    return [
        delete
        for delete in log.after(message.poll, DELETE)
        if _message_id(delete) == message.wire["messageId"]
    ]


def _message_id(delete: Request) -> str:
    return str(delete.wire["path"]).rpartition("/messages/")[2].partition("?")[0]


@rule("must", POLLS, DEPLOYED)
def claim_every_message(log: Log) -> Findings:
    """If there is one or more messages the worker must claim the tasks referenced in the messages, and delete
    the messages.

    Call claimTask for the task of each message that a poll receives.
    """
    for message in log.messages:
        if message.run:
            yield from _followed(log, message.poll, _claims_of(log, message), POLL)


@rule("must", ("draft",), DRAFT)
def claim_with_the_message(log: Log) -> Findings:
    """queue.claimTask(taskId, runId, { [...] messageId: QueueMessage.MessageId, receipt:
    QueueMessage.PopReceipt, signature: signature // From JSON parse base64 encoded <MessageText> });

    Send messageId, receipt and signature exactly as they were in the message.
    """
    names = ("messageId", "receipt", "signature")
    for claim in log.of("claimTask"):
        sent = [claim.wire.get(name) for name in names]
        received = [message for message in log.messages if claim in _claims_of(log, message)]
        is_kept = any([message.wire.get(name) for name in names] == sent for message in received)
        if received or _has_all_messages(log):
            yield is_kept, [*(message.poll for message in received[:1]), claim]


@rule("must", PROTOCOLS, CLAIMWORK)
def claim_by_name(log: Log) -> Findings:
    """A worker must at a minimum have [...] A `workerGroup` and `workerId` that uniquely identifies the
    worker

    Send the worker's own workerGroup and workerId with each claim.
    """
    for claim in log.of("claimTask", "claimWork"):
        name = f"{claim.wire.get('workerGroup')}/{claim.wire.get('workerId')}"
        yield "workerId" in claim.wire and log.worker in (None, name), [claim]


@rule("must", POLLS, DEPLOYED)
def leave_a_refused_task(log: Log) -> Findings:
    """A 400 hundred range error implies that the task wasn't created, not scheduled or already claimed

    If a claim is refused with 4xx, do not run, reclaim or report that run. This happens, for example, if its
    message is delivered twice.
    """
    for claim in log.of("claimTask"):
        if claim.was_refused and log.is_whole and not log.is_of_worker(claim):
            calls = [call for call in log.after(claim, *RUN_CALLS) if call.run == claim.run]
            yield from _not_followed(log, claim, calls)


@rule("must", POLLS, DEPLOYED)
def go_on_after_a_malformed_message(log: Log) -> Findings:
    """If there is one or more messages the worker must claim the tasks referenced in the messages

    If a message names no task, go on with the next message. There may be tasks behind it.
    """
    for message in log.messages:
        if not message.run:
            yield from _asks_again(log, message.poll)


@rule("must", ("draft",), DRAFT)
def keep_the_message(log: Log) -> Findings:
    """Proceeds to update the Azure queue message with an invisibility timeout that matches `takenUntil`

    Never delete a message. When a run is claimed, the queue turns its message into the message of the next
    run.
    """
    for message in log.messages:
        for claim in _claims_of(log, message):
            if claim.was_done:
                yield from _not_followed(log, claim, _deletes(log, message))


@rule("must", ("deployed",), DEPLOYED)
def delete_after_the_claim(log: Log) -> Findings:
    """If the `queue.claimTask()` operation is successful or fails with a 4xx error, the worker must delete
    the messages from the Azure queue.

    When the claim has succeeded or was refused with 4xx, delete the message.
    """
    for message in log.messages:
        final = [claim for claim in _claims_of(log, message) if not claim.has_failed]
        if final:
            yield from _followed(log, final[0], _deletes(log, message), POLL, *REPORTS)


@rule("must", ("deployed",), DEPLOYED)
def delete_only_after_the_claim(log: Log) -> Findings:
    """If the `queue.claimTask()` operation is successful or fails with a 4xx error, the worker must delete
    the messages from the Azure queue.

    Claim the task before you delete its message. If you delete it first and the worker dies, the task is
    lost.
    """
    for message in log.messages:
        for delete in _deletes(log, message) if message.run else ():
            is_kept = any(delete.follows(claim) for claim in _claims_of(log, message))
            yield is_kept, [message.poll, delete]


@rule("must", ("deployed",), DEPLOYED)
def keep_the_message_after_a_5xx(log: Log) -> Findings:
    """If the `queue.claimTask()` operation is successful or fails with a 4xx error, the worker must delete
    the messages from the Azure queue.

    If claimTask is answered with 5xx, or not at all, keep the message. Then another worker can receive it.
    """
    for message in log.messages:
        claims = _claims_of(log, message)
        final = [claim for claim in claims if not claim.has_failed]
        if claims and claims[0] not in final:
            deletes = [delete for delete in _deletes(log, message) if delete.follows(claims[0])]
            early = [delete for delete in deletes if not any(map(delete.follows, final))]
            yield from _not_followed(log, claims[0], early)


@rule("must", ("deployed",), DEPLOYED)
def encode_the_receipt(log: Log) -> Findings:
    """The worker **must** URI encode the contents of `<PopReceipt>` before substituting into the
    `signedDeleteUrl`. Otherwise, the worker will experience intermittent failures.

    URI-encode the pop receipt. If you do not, each + in it arrives as a space.
    """
    for delete in log.of(DELETE):
        yield _NOT_ENCODED not in (delete.wire.get("reason") or ""), [delete]


@rule("must", ("deployed",), DEPLOYED)
def delete_by_message_id(log: Log) -> Findings:
    """Before using the `signedDeleteUrl` the worker **must** replace the placeholder {{messageId}} with the
    contents of the `<MessageId>` tag.

    Replace {{messageId}} with the MessageId that the poll has received.
    """
    for delete in log.of(DELETE):
        is_kept = any(_message_id(delete) == message.wire["messageId"] for message in log.messages)
        if is_kept or _has_all_messages(log):
            yield is_kept, [delete]


@rule("must", ("deployed",), DEPLOYED)
def go_on_after_a_failed_delete(log: Log) -> Findings:
    """Failure to delete messages from Azure queue is serious, as it wouldn't manifest itself in an immediate
    bug. [...] The worker will likely continue to work

    If the message of a claimed task cannot be deleted, for example because its receipt is stale, go on with
    the task.
    """
    for delete in log.of(DELETE):
        if not delete.was_done:
            yield from _asks_again(log, delete)


@rule("should", ("deployed",), DEPLOYED)
def look_at_the_dequeue_count(log: Log) -> Findings:
    """Reads the value of the `<DequeueCount>` and logs messages that alerts the operator if a message has
    been dequeued a significant number of times. For example more than 10.

    Log a message that comes back again and again. If it names no task, delete it.
    """
    for message in log.messages:
        if not message.run and message.wire["dequeueCount"] > 10:
            yield from _followed(log, message.poll, _deletes(log, message), POLL)


# claimWork


@rule("must", ASKS, CLAIMWORK)
def run_every_claim(log: Log) -> Findings:
    """claimWork(provisionerId, workerType, {workerGroup, workerId, tasks}), where `tasks` is the number of
    tasks it is willing to process

    Run every task of the answer. The queue has claimed all of them for the worker, up to `tasks`.
    """
    for period in log.claims:
        calls = log.about(period.run, *RUN_CALLS)
        if calls or _is_dropped(log, period):
            yield bool(calls), [period.request, *calls[:1]]


def _is_dropped(log: Log, period: ClaimPeriod) -> bool:
    """Whether the worker claimed a run, did nothing about it, and went on to others.

    If the run is short, this shows once the worker has run a task that it claimed later. If the claim is
    long, it shows once the worker asks for more after takenUntil.
    """
    if log.about(period.run, *RUN_CALLS):
        return False
    if log.lasts.get(period.run[0]) == timedelta(0):
        later = [claim.run for claim in log.claims if claim.request.follows(period.request)]
        ends = [report.ended for run in later for report in log.reports(run)[:1]]
        return any(log.has_gone_on(end + QUIET_TIME * log.pace) for end in ends)
    return period.is_long and any(ask.begun > period.end for ask in log.of(POLL, "claimWork"))


@rule("must", ASKS, CLAIMWORK)
def wait_for_the_answer(log: Log) -> Findings:
    """This end-point is long-polling and may take up to 20 seconds to return.

    Wait at least 20 seconds for the answer of claimWork. Do not close the connection earlier.
    """
    asked = log.of("claimWork")
    # the queue notices a closed connection only some seconds later
    closed = [claim for claim in asked if "isDisconnected" in claim.wire]
    given_up = [claim for claim in closed if any(claim.begun < other.begun for other in asked)]
    empty = [claim for claim in asked if claim.was_done and not claim.claims and claim not in closed]
    waited = [claim for claim in empty if claim.wire["ms"] >= WAITED]
    # if a worker mostly waits, the few connections were closed because somebody restarted it
    is_restarted = len(given_up) <= len(waited)
    for claim in [*waited, *([] if is_restarted else given_up)]:
        yield claim in waited, [claim]


@rule("should", ASKS, CLAIMWORK)
def pause_after_an_empty_answer(log: Log) -> Findings:
    """If it returns less than the requested number of tasks, this is not an indication that further tasks
    aren't available.

    Ask again. If the empty answer came at once, sleep for a second first.
    """
    for claim, following in pairwise(log.of("claimWork")):
        if claim.was_done and not claim.claims and claim.wire["ms"] < _BRIEFLY:
            yield from _paused(claim, claim, following)


# A claimed run


def _renewals(log: Log) -> Iterator[tuple[ClaimPeriod, bool, bool, list[Request]]]:
    """Each claim or reclaim that shows whether the worker reclaims in time.

    The first boolean says whether the worker had several tasks, the second whether it called reclaimTask
    before the claim ended. If a short claim is not reclaimed at all, that counts against a worker only if it
    has reclaimed others in time.
    """
    periods = [period for period in log.periods() if log.situation != "clock"]
    reclaims = {
        period: [call for call in log.about(period.run, "reclaimTask") if call.follows(period.request)]
        for period in periods
    }
    in_time = {period: [call for call in reclaims[period] if call.begun < period.end] for period in periods}
    for period in periods:
        is_reported = any(call.begun < period.end for call in log.about(period.run, *REPORTS))
        is_late = not is_reported and period.end <= log.last_moment and not _is_dropped(log, period)
        is_able = period.is_long or (any(in_time.values()) and not reclaims[period])
        if in_time[period] or (is_late and is_able):
            over = min([period.end, *(report.begun for report in log.reports(period.run))])
            is_one_of_several = any(
                other.run[0] != period.run[0]
                and other.request.begun < over
                and not any(period.request.follows(report) for report in log.about(other.run, *REPORTS))
                for other in log.claims
            )
            yield period, is_one_of_several, bool(in_time[period]), [period.request, *in_time[period][:1]]


@rule("must", PROTOCOLS, DEPLOYED)
def reclaim_in_time(log: Log) -> Findings:
    """A worker must call `queue.reclaimTask` before the claim denoted in `takenUntil` expires.

    While the task runs, call reclaimTask some minutes before takenUntil.
    """
    for period, is_one_of_several, is_kept, requests in _renewals(log):
        if not is_one_of_several and period.number == 0:
            yield is_kept, requests


@rule("must", PROTOCOLS, DEPLOYED)
def reclaim_again(log: Log) -> Findings:
    """This claim has an expiration, see the `takenUntil` property in the task status structure returned from
    `queue.claimTask` and `queue.reclaimTask`.

    Each reclaim returns a new takenUntil. Reclaim again before it comes.
    """
    for period, is_one_of_several, is_kept, requests in _renewals(log):
        if not is_one_of_several and period.number > 0:
            yield is_kept, requests


@rule("must", PROTOCOLS, DRAFT)
def keep_several_claims(log: Log) -> Findings:
    """It must also claim these tasks. This is worker that has _capacity_ to run multiple tasks in parallel.

    If the worker runs several tasks at once, reclaim each of them before its own takenUntil.
    """
    for _, is_one_of_several, is_kept, requests in _renewals(log):
        if is_one_of_several:
            yield is_kept, requests


@rule("must", PROTOCOLS, CLAIMWORK)
def use_the_newest_credentials(log: Log) -> Findings:
    """The `reclaimTask` response also contains a set of temporary credentials intended to replace the
    previous credentials that are set to expire shortly after `takenUntil`

    Sign with the credentials that the last reclaim returned.
    """
    for period in log.periods():
        for call in log.about(period.run, "reclaimTask", "createArtifact", *REPORTS) if period.number else ():
            _, is_temporary, until = call.wire.get("clientId", "").partition("/until/")
            if is_temporary and call.begun > period.request.ended + QUIET_TIME * log.pace:
                yield int(until) >= int(period.end.timestamp()), [period.request, call]


@rule("must", PROTOCOLS, CLAIMWORK)
def stop_on_a_409(log: Log) -> Findings:
    """If an attempt to call `reclaimTask` returns `409`, [...] the worker should halt execution, cleanup, and
    forget all about the task. There is no need to attempt artifact upload or reporting the task result.

    If reclaimTask is answered with 409, send nothing more about the run.
    """
    for reclaim in log.of("reclaimTask"):
        if reclaim.status == 409 and reclaim.run:
            if any(reclaim.follows(report) for report in log.reports(reclaim.run)):
                continue  # the worker has reported the run, so there is nothing to stop
            late, is_broken = _late_calls(log, reclaim)
            end = log.script_end(reclaim.run)  # until then the worker may still be running it
            if is_broken or (end and not late and log.has_gone_on(end + QUIET_TIME * log.pace)):
                yield not is_broken, [reclaim, *late[:2]]


@rule("must", PROTOCOLS, CLAIMWORK)
def go_on_after_a_lost_claim(log: Log) -> Findings:
    """Perhaps the worker was too late to reclaim the task, or it could have been canceled by a user. Either
    way, the worker should halt execution, cleanup, and forget all about the task.

    If the task was canceled, or its deadline has passed, ask for other work.
    """
    for reclaim in log.of("reclaimTask"):
        if reclaim.status == 409:
            yield from _asks_again(log, reclaim)


@rule("should", PROTOCOLS, DEPLOYED)
def live_with_another_clock(log: Log) -> Findings:
    """It's recommended that this attempted a few minutes prior to expiration, to allow for clock drift.

    Run tasks even if the queue's clock is ten minutes ahead of the worker's.
    """
    for claim in log.claims:
        if log.situation == "clock":
            reports = log.reports(claim.run)
            yield from _followed(log, claim.request, reports, POLL, "claimWork", within=MAX_REACTION_TIME)


# Answers that fail, are refused or get lost


@rule("should", PROTOCOLS, CLAIMWORK)
def repeat_after_a_5xx(log: Log) -> Findings:
    """It is recommended that this attempted a few minutes prior to expiration, to allow for clock drift and
    retries.

    If a call is answered with 5xx, send the same call again.
    """
    for call in log.of("reclaimTask", *_REPEATED):
        if call.status >= 500:
            yield from _followed(log, call, log.again(call), within=MAX_REACTION_TIME)


@rule("should", PROTOCOLS, CLAIMWORK)
def repeat_after_growing_pauses(log: Log) -> Findings:
    """It is recommended that this attempted a few minutes prior to expiration, to allow for clock drift and
    retries.

    Wait longer before each new attempt.
    """
    for first in log.of(*_REPEATED):
        calls = [first, *log.again(first)][: _FAILURES + 1]
        if len(calls) > _FAILURES and all(call.status >= 500 for call in calls[:-1]):
            pauses = [following.begun - call.ended for call, following in pairwise(calls)]
            # A slow machine makes a pause longer, never shorter. So one long pause proves nothing.
            grows = min(pauses[-2:]) > _GROWING * pauses[0]
            if grows or pauses[-1] <= _GROWING * min(pauses):
                yield grows, calls


@rule("must", PROTOCOLS, DEPLOYED)
def do_not_repeat_after_a_4xx(log: Log) -> Findings:
    """A 400 hundred range error implies that the task wasn't created, not scheduled or already claimed

    Do not repeat a call that was answered with 4xx. The answer would be the same.
    """
    for call in log.of("claimTask", "reclaimTask", "createArtifact", *REPORTS):
        if call.was_refused:
            # If the run's message is received again later, the worker must claim it, and report that claim.
            causes = [message.poll for message in log.messages if message.run == call.run]
            if call.call != "claimTask":
                causes = [claim.request for claim in log.claims if claim.run == call.run]
            is_new = any(call.ended <= cause.begun for cause in causes)
            yield from _not_followed(log, call, [] if is_new else log.again(call), MAX_REACTION_TIME)


def _repeated_if_lost(*calls: str) -> Check:
    def check(log: Log) -> Findings:
        for call in log.of(*calls):
            if call.status == 0 and "fault" in call.wire:
                yield from _followed(log, call, log.again(call), within=MAX_REACTION_TIME)

    return check


for _name, _calls in {
    "claim": ("claimTask", "claimWork"),
    "reclaim": ("reclaimTask",),
    "report": REPORTS,
    "artifact": ("createArtifact",),
}.items():
    RULES.append(
        Rule(
            f"repeat-a-lost-{_name}",
            "should",
            PROTOCOLS,
            CLAIMWORK,
            "It is recommended that this attempted a few minutes prior to expiration, to allow for clock "
            "drift and retries.",
            "Repeat a call that got no answer. The queue gives the same worker the same answer again.",
            _repeated_if_lost(*_calls),
        )
    )


# Reports


@rule("must", PROTOCOLS, DEPLOYED)
def report_the_result(log: Log) -> Findings:
    """If the task is unsuccessful, ie. exits non-zero, the worker should resolve it using
    `queue.reportFailed` (this implies test or build failure).

    If the task ends with exit code 0, call reportCompleted. Otherwise call reportFailed.
    """
    right = {"completes": "reportCompleted", "fails": "reportFailed"}
    for claim in log.claims:
        expected = right.get(log.tasks.get(claim.run[0], ""))
        for report in log.reports(claim.run) if expected else ():
            yield report.call == expected, [report]


@rule("must", PROTOCOLS, DEPLOYED)
def report_a_malformed_payload(log: Log) -> Findings:
    """If the worker is unable execute the task specific payload/code/logic, it should report exception with
    the reason `malformed-payload`.

    Call reportException with the reason malformed-payload.
    """
    for claim in log.claims:
        for report in log.reports(claim.run) if log.tasks.get(claim.run[0]) == "malformed" else ():
            yield report.reported_reason == "malformed-payload", [report]


@rule("must", PROTOCOLS, DEPLOYED)
def report_a_shutdown(log: Log) -> Findings:
    """If the worker finds itself having to terminate early, [...] the worker should report exception with the
    reason `worker-shutdown`.

    On SIGTERM, call reportException with the reason worker-shutdown for each running task, within 30 seconds.
    """
    for claim in log.claims:
        reports = log.reports(claim.run)
        stopped = log.stopped
        if stopped and claim.request.ended < stopped and not any(each.begun < stopped for each in reports):
            is_kept = any(report.reported_reason == "worker-shutdown" for report in reports)
            yield is_kept, [claim.request, *reports]


@rule("must", PROTOCOLS, DEPLOYED)
def report_once(log: Log) -> Findings:
    """When the worker has completed the task successfully it should call `queue.reportCompleted`.

    Report a run once. After a report was accepted, send no other report of the run.
    """
    for claim in log.claims:
        for report in log.reports(claim.run)[:1]:
            later = [other for other in log.about(claim.run, *REPORTS) if other.follows(report)]
            yield from _not_followed(log, report, later)


@rule("must", PROTOCOLS, CLAIMWORK)
def upload_before_the_report(log: Log) -> Findings:
    """Notice that artifacts must be uploaded before the task is reported _completed_ or _failed_.

    Create and upload all artifacts first. Then call reportCompleted or reportFailed.
    """
    for report in log.of("reportCompleted", "reportFailed"):
        uploads = log.about(report.run, "createArtifact", UPLOAD)
        if uploads and report.was_done:
            late = [upload for upload in uploads if upload.begun > report.begun]
            yield not late, [*uploads[:1], report, *late[:1]]
