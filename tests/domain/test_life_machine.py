"""Any sequence of transitions is the life of a task: a model of a few words says what follows what.

The model knows of each run only its state and its reason. What a change must bring with it (events,
messages, what a crash leaves to be derived) is checked of each change by itself: see ``_check_change``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import QueueError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.events import Event, events_since
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.outcome import Offer, Outcome
from legacy_queue.domain.task import Run, Task, Worker
from legacy_queue.domain.timer import next_due
from legacy_queue.domain.times import format_time
from tests.domain.tasks import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HOUR,
    MINUTE,
    MS,
    NOW,
    SECOND,
    TASK_ID,
    definition,
)

SETTINGS = settings(max_examples=100, stateful_step_count=25)

OTHERS = ("dependency-a", "dependency-b")
RETRIED = ("claim-expired", "worker-shutdown", "intermittent-task")
NEAR = 3 * SECOND  # to the deadline: nothing is held, Azure would refuse
MAX_RUNS = 50
ENDS = ("completed", "failed", "exception")

REPORTS = (
    ("completed", "completed"),
    ("failed", "failed"),
    ("exception", "worker-shutdown"),
    ("exception", "intermittent-task"),
    ("exception", "malformed-payload"),
)
RUNS = st.sampled_from([0, 0, 0, 1, 2, -1])  # counted from the last one
WORKERS = st.sampled_from([ALICE, BOB])
# in words of the model, what the runs are afterwards; or why it is refused
Expected = Sequence[str] | type[QueueError]


class Life(RuleBasedStateMachine):
    """One task. ``words`` is the model: of each run ``pending``, ``running``, ``exception canceled``, ..."""

    @initialize(
        retries=st.sampled_from([0, 1, 2, 5, 49]),
        waits_for=st.sampled_from([(), (), (TASK_ID,), OTHERS, (*OTHERS, TASK_ID)]),
        lasts=st.sampled_from([2 * SECOND, 30 * MINUTE, DAY]),
    )
    def create(self, retries: int, waits_for: tuple[str, ...], lasts: timedelta) -> None:
        self.now, self.deadline = NOW, NOW + lasts
        self.definition = definition(
            retries=retries, dependencies=list(waits_for), deadline=format_time(self.deadline)
        )
        self.words = [] if waits_for else ["pending"]
        self.waits_for, self.retries_left = set(waits_for), retries
        self.holder, self.taken_until = ALICE, NOW  # while it is running
        self.workers: set[int] = set()  # the runs that a worker ever held
        self.leases = 0
        self.happened: set[tuple[str, int | None]] = set()  # the events of its life
        outcome = transitions.create(TASK_ID, self.definition, waits_for, self.now)
        self.task = outcome.task
        assert self._words_of_runs() == self.words
        self._check_change(None, outcome)
        again = transitions.create_again(self.task, self.definition)
        assert (again.task, again.events, again.after) == (self.task, outcome.events, outcome.after)

    @property
    def state(self) -> str:
        return self.words[-1].split()[0] if self.words else "unscheduled"

    @property
    def last(self) -> int:
        return len(self.words) - 1

    @property
    def is_late(self) -> bool:
        return self.now >= self.deadline

    @property
    def is_resolved(self) -> bool:
        return self.state in ENDS

    @property
    def has_expired(self) -> bool:
        return self.state == "running" and self.now >= self.taken_until

    @rule(wait=st.sampled_from([SECOND, 30 * SECOND, 5 * MINUTE, CLAIM_TIMEOUT, HOUR]))
    def wait(self, wait: timedelta) -> None:
        self.now += wait

    @rule(
        end=st.sampled_from(["the claim", "the deadline", "a claim at the deadline"]),
        early=st.sampled_from([0 * MS, MS, 2 * SECOND, 4 * SECOND, 10 * SECOND, MINUTE]),
    )
    def wait_for(self, end: str, early: timedelta) -> None:
        """Wait until an end or shortly before it."""
        ends = {"the deadline": self.deadline, "a claim at the deadline": self.deadline - CLAIM_TIMEOUT}
        self.now = max(self.now, ends.get(end, self.taken_until) - early)

    @rule(is_same=st.booleans())
    def create_again(self, is_same: bool) -> None:
        given = self.definition if is_same else definition(payload={"another": "one"})
        self._step(
            lambda task: transitions.create_again(task, given),
            self.words if is_same else RequestConflict,
        )

    @rule()
    def schedule(self) -> None:
        self._step(
            lambda task: transitions.schedule(task, self.now),
            RequestConflict if self.is_late else self.words or ["pending"],
        )

    @precondition(lambda self: self.last < 2)
    @rule(required=st.sampled_from([*OTHERS, TASK_ID]))
    def satisfy(self, required: str) -> None:
        was_waiting = required in self.waits_for
        self.waits_for.discard(required)
        starts = was_waiting and not (self.waits_for or self.words or self.is_late)
        self._step(
            lambda task: transitions.satisfy(task, required, self.now), ["pending"] if starts else self.words
        )

    @rule(
        ahead=RUNS,
        worker=WORKERS,
        brings=st.sampled_from(["nothing", "an id", "its message", "the held one"]),
    )
    def claim(self, ahead: int, worker: Worker, brings: str) -> None:
        run_id = max(0, self.last + ahead)
        lease = (
            self.task.held if brings == "the held one" else self._lease() if brings == "its message" else None
        )
        message_id = lease.message_id if lease else "its-id" if brings == "an id" else None
        self._step(
            lambda task: transitions.claim(task, run_id, worker, lease, message_id, CLAIM_TIMEOUT, self.now),
            self._claimed(run_id - self.last, worker, message_id),
            may_refuse_next=ahead > 0,
        )

    def _claimed(self, ahead: int, worker: Worker, message_id: str | None) -> Expected:
        if self.is_late:
            return RequestConflict
        if self.state == "pending" and ahead >= 0:
            return [*self.words[:-1], "running"]
        if self.state == "running" and ahead > 0:
            if self.has_expired:
                words = self._ended("exception", "claim-expired")
                return [*words[:-1], "running"] if words[-1] == "pending" else words
            held = self.task.held
            is_duplicate = message_id is not None and held is not None and message_id != held.message_id
            return RequestConflict if is_duplicate else ServiceUnavailable
        if self.state == "running" and ahead == 0 and worker == self.holder and not self.has_expired:
            return self.words
        return RequestConflict if self.words and (ahead <= 0 or self.is_resolved) else ResourceNotFound

    @precondition(lambda self: self.words)
    @rule(ahead=RUNS, timeout=st.sampled_from([MINUTE, CLAIM_TIMEOUT]))
    def reclaim(self, ahead: int, timeout: timedelta) -> None:
        run_id = max(0, self.last + ahead)
        is_held = run_id == self.last and self.state == "running" and not (self.has_expired or self.is_late)
        self._step(
            lambda task: transitions.reclaim(task, run_id, timeout, self.now),
            self.words if is_held else self._refused(run_id),
        )
        if is_held:
            self.taken_until = max(self.taken_until, self.now + timeout)
            assert self.task.runs[-1].taken_until == self.taken_until

    @precondition(lambda self: self.words)
    @rule(ahead=RUNS, report=st.sampled_from(REPORTS))
    def resolve(self, ahead: int, report: tuple[str, str]) -> None:
        run_id = max(0, self.last + ahead)
        expected: Expected = self._refused(run_id)
        if run_id == self.last and self.state == "running":
            expected = self._ended(*report)
        elif run_id in self.workers and self.words[run_id] == _words(*report):
            expected = self.words
        self._step(lambda task: transitions.resolve(task, run_id, *report, self.now), expected)

    @precondition(lambda self: self.words)
    @rule(ahead=RUNS, worker=WORKERS, extended=st.sampled_from([0 * MS, 0 * MS, MS, MINUTE]))
    def release_claim(self, ahead: int, worker: Worker, extended: timedelta) -> None:
        """``extended``: by how much the claim was extended since its answer."""
        run_id, answered = max(0, self.last + ahead), self.taken_until - extended
        is_that_claim = run_id == self.last and self.state == "running" and worker == self.holder
        expected = [*self.words[:-1], "pending"] if is_that_claim and not extended else self.words
        self._step(lambda task: transitions.release_claim(task, run_id, worker, answered), expected)

    @rule()
    def cancel(self) -> None:
        canceled = self.words if self.is_resolved else [*self.words[:-1], "exception canceled"]
        self._step(
            lambda task: transitions.cancel(task, self.now), RequestConflict if self.is_late else canceled
        )

    @rule()
    def rerun(self) -> None:
        expected: Expected = self.words
        if self.is_late or (self.is_resolved and len(self.words) == MAX_RUNS):
            expected = RequestConflict
        elif self.is_resolved or not self.words:
            expected = [*self.words, "pending"]
        self._step(lambda task: transitions.rerun(task, self.now), expected)

    @rule(priority=st.sampled_from(["highest", "medium", "lowest"]))
    def change_priority(self, priority: str) -> None:
        before, is_kept = self.task, self.is_late or self.is_resolved
        changes = not is_kept and priority != before.priority
        self.happened |= {("task-priority-changed", None)} if changes else set()
        self._step(
            lambda task: transitions.change_priority(task, priority, self.now),
            RequestConflict if is_kept else self.words,
        )
        assert self.task.priority == (before.priority if is_kept else priority)
        if changes and before.held:
            assert self.task.held is None or self.task.held.message_id != before.held.message_id, (
                "the held message is in the queue of another priority"
            )

    @rule()
    def expire(self) -> None:
        expected: Expected = self.words
        if self.is_late and not self.is_resolved:
            expected = [*self.words[:-1], "exception deadline-exceeded"]
        elif self.has_expired:
            expected = self._ended("exception", "claim-expired")
        self._step(lambda task: transitions.expire(task, self.now), expected)

    # what the rules above reach too seldom

    @precondition(lambda self: self.state == "pending" and not self.is_late)
    @rule(worker=WORKERS)
    def work(self, worker: Worker) -> None:
        self.claim(0, worker, "its message")

    @precondition(lambda self: self.state == "running")
    @rule(report=st.sampled_from(REPORTS))
    def report(self, report: tuple[str, str]) -> None:
        self.resolve(0, report)

    @precondition(lambda self: self.state == "running")
    @rule()
    def disconnect(self) -> None:
        self.release_claim(0, self.holder, 0 * MS)

    @precondition(lambda self: self.state == "running")
    @rule(
        worker=WORKERS, ahead=st.sampled_from([1, 2]), brings=st.sampled_from(["the held one", "its message"])
    )
    def take_over(self, worker: Worker, ahead: int, brings: str) -> None:
        self.now = max(self.now, self.taken_until)
        self.claim(ahead, worker, brings)

    @precondition(lambda self: self.state == "running")
    @rule(early=st.sampled_from([0 * MS, MS, 30 * SECOND]), keep=st.booleans())
    def nearly_expire(self, early: timedelta, keep: bool) -> None:
        self.now = max(self.now, self.taken_until - early)
        if keep:
            self.reclaim(0, CLAIM_TIMEOUT)
        self.expire()

    @precondition(lambda self: self.state == "pending" and not self.is_late and self.last < 10)
    @rule(runs=st.sampled_from([3, MAX_RUNS]))
    def wear_out(self, runs: int) -> None:
        """Each worker shuts down, and a task that is resolved by that is rerun."""
        for _ in range(runs):
            self.now += MS  # so that few events are of the same moment: each of them is derived
            self.claim(0, ALICE, "its message")
            self.resolve(0, ("exception", "worker-shutdown"))
            self.rerun()

    def _refused(self, run_id: int) -> type[QueueError]:
        return RequestConflict if run_id <= self.last else ResourceNotFound

    def _ended(self, state: str, reason: str) -> list[str]:
        words = [*self.words[:-1], _words(state, reason)]
        may_retry = self.retries_left > 0 and len(words) < MAX_RUNS and not self.is_late
        return [*words, "pending"] if reason in RETRIED and may_retry else words

    def _step(
        self,
        transition: Callable[[Task], Outcome],
        expected: Expected,
        *,
        may_refuse_next: bool = False,
    ) -> None:
        """Apply it, and apply it again."""
        before = self.task
        try:
            outcome = transition(before)
        except QueueError as refusal:
            if type(refusal) is not expected:
                raise AssertionError(f"refused, where {expected} was expected") from refusal
            return
        assert not isinstance(expected, type), f"not refused: {expected.__name__} was expected"
        after = self._written(outcome)
        if outcome.task != before:
            self._follow(before, after)
        self.task = after
        assert self._words_of_runs() == list(expected), "the task differs from the model"
        self.words = list(expected)
        assert after.retries_left == self.retries_left, "retriesLeft counts something else than retries"
        assert set(after.waits_for) == self.waits_for
        self._check_change(before, outcome)
        self._check_repeated(transition, outcome, may_refuse_next)

    def _written(self, outcome: Outcome) -> Task:
        """The task that the service stores, with the message that it has held."""
        if outcome.hold is None:
            return outcome.task
        return replace(outcome.task, held=self._lease(outcome.hold.lease))

    def _lease(self, lease: MessageLease | None = None) -> MessageLease:
        self.leases += 1
        return MessageLease(lease.message_id if lease else f"message-{self.leases}", f"receipt-{self.leases}")

    def _follow(self, before: Task, after: Task) -> None:
        """Update what the model has besides its words."""
        for run in after.runs[len(before.runs) :]:
            if run.reason_created == "rerun":
                self.retries_left = min(self.definition.retries, MAX_RUNS - len(after.runs))
            elif run.reason_created in ("retry", "task-retry"):
                self.retries_left -= 1
        last = after.last_run
        if last and last.state == "running":
            if last.run_id not in self.workers:
                self.workers.add(last.run_id)
                self.taken_until = self.now + CLAIM_TIMEOUT
            assert last.worker
            self.holder = last.worker
        elif last and last.state == "pending":
            self.workers.discard(last.run_id)  # the claim was released

    def _words_of_runs(self) -> list[str]:
        return [_words(run.state, run.reason_resolved) for run in self.task.runs]

    def _check_repeated(
        self, transition: Callable[[Task], Outcome], first: Outcome, may_refuse: bool
    ) -> None:
        """A repeated transition changes nothing: so a crash heals when the request is repeated."""
        try:
            second = transition(self.task)
        except QueueError:
            assert first.refusal or may_refuse, "refused when it was repeated"
            return
        assert replace(second.task, held=self.task.held) == self.task, "changed again when it was repeated"
        assert all(event in first.events for event in second.events), "another event when repeated"

    def _check_change(self, before: Task | None, outcome: Outcome) -> None:
        """Check every invariant of a change; ``before`` is None for a new task."""
        after = self.task
        self._check_runs(before, after)
        self._check_messages(before, after, outcome)
        expected = list(_events_of(before, after))
        published = list(map(_about, outcome.events))
        if not expected:
            assert all(_is_so(event, after) for event in outcome.events), "an event is not true"
            return
        assert published == expected, "the events are not those of the change"
        self.happened |= set(expected)
        ends = sum(name.removeprefix("task-") in ENDS for name, _ in self.happened)
        assert sum(run.is_resolved for run in after.runs) == ends
        assert outcome.events[-1].payload["status"] == after.status()
        self._check_derived(before, published)

    def teardown(self) -> None:
        """All events of a task can be derived."""
        ever = {_about(event) for event in events_since(self.task, NOW)}
        assert ever <= self.happened, "an event never happened"
        unseen = {name for name, _ in self.happened - ever}
        assert unseen <= {"task-running"}, "an event of the past is not seen"  # of a released claim

    def _check_runs(self, before: Task | None, after: Task) -> None:
        runs, earlier = after.runs, before.runs if before else ()
        assert [run.run_id for run in runs] == list(range(len(runs))), "runs out of order"
        assert len(runs) <= MAX_RUNS, "too many runs"
        assert all(run.is_resolved for run in runs[:-1]), "a run before the last one is not resolved"
        assert after.retries_left >= 0
        for was, now in zip(earlier, runs, strict=False):
            assert now == was or not was.is_resolved, "a resolved run was changed"
            if was.taken_until and now != _released(was):
                assert now.taken_until, "a claim was forgotten"
                assert now.taken_until >= was.taken_until, "takenUntil shrank"
        if self.is_late and before and after != before:
            is_released = (before.state, after.state) == ("running", "pending")
            has_begun = not after.is_resolved and after.runs != before.runs and not is_released
            assert not has_begun, "something began after the deadline"

    def _check_messages(self, before: Task | None, after: Task, outcome: Outcome) -> None:
        last, hold = after.last_run, outcome.hold
        if last and last.state == "running" and last.taken_until:
            is_far = last.taken_until < self.deadline - NEAR
            assert after.held or not is_far, "no message is held for a claim"
            if hold:
                assert hold.until < self.deadline, "a message is hidden past its end"
                assert (hold.run_id, hold.until) == (last.run_id + 1, last.taken_until)
        else:
            assert (after.held, hold) == (None, None), "a message is held for no claim"
        if before and before.held and not after.held and after.state != "running" and not outcome.refusal:
            assert outcome.after is not None, "the held message is forgotten"
            assert outcome.after.lease == before.held, "the held message is forgotten"
        if last and last.state == "pending" and (before is None or before.runs != after.runs):
            assert isinstance(outcome.after, Offer), "nothing leads to the pending run"
            assert outcome.after.run_id == last.run_id, "nothing leads to the pending run"
        if after.is_resolved:
            assert not isinstance(outcome.after, Offer)

    def _check_derived(self, before: Task | None, published: list[tuple[str, int | None]]) -> None:
        """The events that a crash leaves unpublished are derived from the task, and no other events."""
        since_now = [_about(event) for event in events_since(self.task, self.now)]
        assert set(since_now) <= self.happened, "an event never happened"
        is_released = before and before.state == "running" and self.task.runs[-1].state == "pending"
        if not (is_released and before and len(before.runs) == len(self.task.runs)):
            derived = [event for event in since_now if event in published]
            assert derived == published, "a crash would leave it unpublished"
        ends = self.deadline
        if self.task.state == "running":
            ends = min(ends, self.task.runs[-1].taken_until or ends)
        assert next_due(self.task) == (None if self.task.is_resolved else ends), "nothing ends it in time"


def _released(run: Run) -> Run:
    """The run as before its claim."""
    return replace(run, state="pending", worker=None, taken_until=None, started=None)


def _words(state: str, reason: str | None) -> str:
    return state if reason in (None, state) else f"{state} {reason}"


def _events_of(before: Task | None, after: Task) -> Sequence[tuple[str, int | None]]:
    """(exchange, runId) of each event of a change, in order."""
    events: list[tuple[str, int | None]] = [] if before else [("task-defined", None)]
    known = {run.run_id: run for run in before.runs} if before else {}
    for run in after.runs:
        was = known.get(run.run_id)
        is_released = was is not None and was != run and run == _released(was)
        if was is None and run.reason_created in ("retry", "task-retry"):
            events.append(("task-exception", run.run_id - 1))
        if is_released or (was is None and run.reason_created != "exception"):
            events.append(("task-pending", run.run_id))
        if run.worker and not (was and was.worker):
            events.append(("task-running", run.run_id))
    last = after.last_run
    if last and last.is_resolved and last != known.get(last.run_id):
        events.append((f"task-{last.state}", last.run_id))
    return events


def _about(event: Event) -> tuple[str, int | None]:
    return event.exchange, event.payload.get("runId")


def _is_so(event: Event, task: Task) -> bool:
    """Whether the event is true of the task as it is: of its last run, or of the definition."""
    state = {"task-pending": "pending", "task-running": "running"}
    state |= dict.fromkeys(("task-defined", "task-priority-changed"), task.state)
    return (
        event.payload["status"] == task.status()
        and event.payload.get("runId", task.runs[-1].run_id if task.runs else None)
        == (task.runs[-1].run_id if task.runs else None)
        and task.state == state.get(event.exchange, event.exchange.removeprefix("task-"))
    )


def run(settings: settings) -> None:
    """Raise AssertionError if an invariant is broken."""
    run_state_machine_as_test(Life, settings=settings)


@pytest.mark.timeout(600)  # many examples
@pytest.mark.no_cover  # which would take as long again, and whose lines are left to chance
def test_every_sequence_of_transitions_agrees_with_the_model() -> None:
    run(SETTINGS)
