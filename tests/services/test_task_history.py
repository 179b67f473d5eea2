"""The history of a task, and why a task waits in situations that real calls rarely lead to."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from legacy_queue.domain import transitions
from legacy_queue.domain.call_statistics import Caller, Calls, CallStatistics
from legacy_queue.domain.messages import Peeked, PeekedMessage
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.services.inspection.explanation import Facts, explain
from legacy_queue.services.inspection.task_history import Moment, task_history
from tests.domain.sample_tasks import (
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    MS,
    NOW,
    SECOND,
    TASK_ID,
    ended,
    pending,
    running,
    shut_down,
    unscheduled,
    with_last_run,
)

MESSAGES = [{"taskId": TASK_ID, "runId": 0}]


def history_lines(task: Task, *requests: Any) -> list[tuple[str, str]]:
    return [(moment.time[11:19], moment.what) for moment in task_history(task, requests)]


def test_a_history_has_the_runs_and_the_changes_of_priority() -> None:
    task = running().with_priority("high", NOW + MINUTE)
    task = ended(task, "worker-shutdown", NOW + HOUR)
    until = format_time(NOW + CLAIM_TIMEOUT)
    assert history_lines(task) == [
        ("03:04:05", "defined for provisioner/worker-Type_1, with priority lowest"),
        ("03:04:05", "run 0 is pending (scheduled)"),
        ("03:04:05", f"run 0 is running: claimed by group/alice, last taken until {until}"),
        ("03:05:05", "priority changed from lowest to high"),
        ("04:04:05", "run 0 ended as exception (worker-shutdown)"),
        ("04:04:05", "run 1 is pending (retry)"),
    ]


def test_a_run_that_was_never_pending_only_says_why_the_task_was_resolved() -> None:
    task = transitions.cancel(unscheduled(), NOW + HOUR).task
    assert history_lines(task)[1:] == [("04:04:05", "run 0 ended as exception (canceled)")]


def request(**fields: Any) -> dict[str, Any]:
    fields = {"time": format_time(NOW), "status": 200, "endpoint": "claimTask", **fields}
    return {"begun": fields["time"], **fields}


def test_a_request_is_listed_at_the_time_of_its_start_before_the_changes_that_it_made() -> None:
    create = request(endpoint="createTask", begun=format_time(NOW), time=format_time(NOW + MS))
    begun, late = format_time(NOW + 5 * SECOND), format_time(NOW + 20 * SECOND)
    slow = request(endpoint="claimWork", begun=begun, time=late)
    assert next(what for _, what in history_lines(pending(), create)) == "createTask: 200"
    times = [moment.time for moment in task_history(running(), [slow, request(time=format_time(NOW + HOUR))])]
    assert times == sorted(times)
    assert times[-2] == begun


def test_on_azure_the_server_sees_no_polls_and_no_messages_and_does_not_call_them_missing() -> None:
    calls = CallStatistics({("pollTaskUrls", ()): Calls(1, NOW, NOW)})
    caller = Caller("provisioner", "worker-Type_1", "client", calls)
    facts = Facts(NOW, {}, [], Peeked([], hidden=3), 0, is_proof_required=False, sees_polls=False)
    assert [wait.situation for wait in explain(pending(), facts)] == ["never-polled", "not-shown", "deadline"]
    waits = {wait.situation: wait.sentence for wait in explain(pending(), replace(facts, callers=[caller]))}
    assert waits["polled"].endswith(" ago. Polls of Azure do not count: this server does not see them.")


def test_the_explanation_promises_that_the_sweeper_helps_only_if_it_will_notice_the_missing_message() -> None:
    another = PeekedMessage("id", ("another", 0), "lowest", timedelta(0), 0, NOW)
    for needed, is_promised in ((None, True), (1, False), (2, True)):
        facts = Facts(NOW, {}, [], Peeked([another], hidden=0), needed, is_proof_required=False)
        [missing] = [wait for wait in explain(pending(), facts) if wait.situation == "message-missing"]
        assert missing.sentence.startswith("Its message is missing. ")
        assert (missing.until is not None) is is_promised


def facts(task: Task, *requests: Any, **more: Any) -> list[dict[str, Any]]:
    """The moments in the form of an answer, without those of the kind change."""
    wires = [dict(moment.to_wire()) for moment in task_history(task, requests, **more)]
    return [wire for wire in wires if wire.pop("time") and wire["kind"] != "change"]


def of_message(endpoint: str, at: timedelta, **fields: Any) -> dict[str, Any]:
    return request(
        endpoint=endpoint, path="/q/messages", time=format_time(NOW + at), taskId=TASK_ID, **fields
    )


def test_a_claim_of_several_tasks_shows_the_taken_until_of_this_task() -> None:
    claims = [
        {"taskId": task_id, "runId": run_id, "takenUntil": format_time(NOW + HOUR * (run_id + 1))}
        for run_id, task_id in enumerate(("another", TASK_ID))
    ]
    [claim] = facts(running(), request(endpoint="claimWork", claims=claims))
    assert (claim["runId"], claim["takenUntil"]) == (1, format_time(NOW + 2 * HOUR))


def test_a_poll_hides_the_message_for_the_time_in_its_url_or_for_half_a_minute() -> None:
    messages = [{}, {"taskId": "another", "runId": 5}, *MESSAGES]
    for path, seconds in (("/q/messages?visibilitytimeout=300&***", 300), ("/q", 30)):
        [poll] = facts(pending(), of_message("azure.receive", MINUTE, messages=messages) | {"path": path})
        until = format_time(NOW + MINUTE + seconds * SECOND)
        assert (poll["runId"], poll["message"], poll["hiddenUntil"]) == (0, "hidden", until)
    slow = of_message("azure.receive", MINUTE, messages=MESSAGES) | {"begun": format_time(NOW - SECOND)}
    assert history_lines(pending(), slow)[-1] == ("03:05:05", "azure.receive: 200"), (
        "the message is hidden when the poll is answered"
    )
    [poll] = facts(running(), of_message("azure.receive", 0 * MS, messages=MESSAGES))
    assert poll["message"] == "hidden", "even if it is claimed in the millisecond of the answer"


def test_the_message_of_a_pending_run_is_gone_if_a_worker_deletes_it_or_a_fault_loses_it() -> None:
    deleted = of_message("azure.delete", MINUTE, runId=0) | {"status": 204}
    refused = of_message("azure.delete", 2 * MINUTE, runId=0) | {"status": 404}
    lost = of_message("azure.receive", 3 * MINUTE, runId=0, messages=[], fault="12345678")
    moments = facts(pending(), deleted, refused, lost)
    assert [moment.get("message") for moment in moments] == ["gone", None, "gone"]
    assert [moment["kind"] for moment in moments] == ["request", "request", "fault"]


def test_what_happens_to_a_duplicate_does_not_change_the_message_that_a_claim_holds() -> None:
    task = with_last_run(running(), started=NOW + SECOND)
    polls = [of_message("azure.receive", at, messages=MESSAGES) for at in (0 * MS, MINUTE, CLAIM_TIMEOUT)]
    assert [poll.get("message") for poll in facts(task, *polls)] == ["hidden", None, "hidden"]
    retried = ended(task, "worker-shutdown", NOW + SECOND * 30)
    assert [poll.get("message") for poll in facts(retried, *polls)] == ["hidden", None]


def test_the_queue_deletes_only_the_message_of_a_task_that_is_resolved_while_it_is_claimed() -> None:
    def last(task: Task) -> Any:
        wires = [moment.to_wire() for moment in task_history(task)]
        return [wire.get("message") for wire in wires if wire.get("state") in ("completed", "exception")]

    assert last(ended()) == ["gone"]
    assert last(shut_down()) == [None]
    assert last(transitions.cancel(pending(), NOW + MINUTE).task) == [None]


def clock(begin: timedelta, end: timedelta, what: str = "moved") -> Moment:
    return Moment(format_time(NOW + begin), what, "clock", {"movedTo": format_time(NOW + end)})


def test_moves_of_the_clock_before_a_task_was_created_and_after_it_was_resolved_are_left_out() -> None:
    moves = [
        clock(-MINUTE, timedelta(0), "before"),
        clock(timedelta(0), timedelta(0), "frozen when it was created, or before"),
        clock(timedelta(0), MINUTE, "from its creation on"),
        clock(HOUR, 2 * HOUR, "from its end on"),
        clock(2 * HOUR, 3 * HOUR, "after"),
    ]
    in_life = [it["what"] for it in facts(ended(at=NOW + HOUR), clock_moves=moves)]
    assert in_life == ["from its creation on", "from its end on"]
    assert [it["what"] for it in facts(running(), clock_moves=moves)][-1] == "after"
    moves = [clock(MINUTE * number, MINUTE * (number + 1)) for number in range(3)]
    together = {"what": "moved (3 times)", "kind": "clock", "movedTo": format_time(NOW + 3 * MINUTE)}
    assert facts(running(), clock_moves=moves) == [together], "equal moves in a row are one entry"


def test_reclaims_in_a_row_are_listed_separately_if_their_taken_until_differs() -> None:
    reclaims = [
        request(
            endpoint="reclaimTask",
            time=format_time(NOW + number * MINUTE),
            claims=[{"taskId": TASK_ID, "runId": 0, "takenUntil": format_time(NOW + number * HOUR)}],
        )
        for number in (1, 2, 2)
    ]
    said = [it["what"] for it in facts(running(), *reclaims)]
    assert said == ["reclaimTask: 200", "reclaimTask: 200 (2 times)"]


def names(history: list[Moment]) -> list[str]:
    return [it.facts.get("endpoint") or it.what.partition(" (")[0].partition(":")[0] for it in history]


def test_with_a_frozen_clock_moments_are_in_the_order_in_which_they_happened() -> None:
    now = format_time(NOW)
    moves = [
        Moment(now, "frozen", "clock", {"movedTo": now, "frozen": True}),
        Moment(now, "released", "clock", {"movedTo": now, "frozen": False}),
    ]
    task = with_last_run(running(created=format_time(NOW - MINUTE)), scheduled=NOW, started=NOW)
    for priority in ("high", "low"):
        task = task.with_priority(priority, NOW)
    task = ended(task)
    requests = [
        request(endpoint="changeTaskPriority"),
        of_message("azure.receive", 0 * MS, messages=MESSAGES, runId=0),
        request(endpoint="claimTask", runId=0, status=409),
        request(endpoint="claimTask", runId=0),
        of_message("azure.delete", 0 * MS, status=204, runId=0),
        request(endpoint="changeTaskPriority"),
        request(endpoint="createArtifact", runId=0),
        request(endpoint="reportCompleted", runId=0),
    ]
    history = task_history(task, requests, clock_moves=moves)
    assert names(history)[1:] == [
        "frozen",
        "run 0 is pending",
        "changeTaskPriority",
        "priority changed from lowest to high",
        "azure.receive",
        "claimTask",
        "claimTask",
        "run 0 is running",
        "azure.delete",
        "changeTaskPriority",
        "priority changed from high to low",
        "createArtifact",
        "reportCompleted",
        "run 0 completed",
        "released",
    ]
    message_states = [moment.facts["message"] for moment in history if "message" in moment.facts]
    assert list(dict.fromkeys(message_states)) == ["visible", "hidden", "held", "gone"]
    event = Moment(now, "task-pending published", "event")
    requests.append(request(endpoint="rerunTask"))
    history = task_history(transitions.rerun(task, NOW).task, requests, events=[event])
    assert names(history)[-4:] == ["run 0 completed", "rerunTask", "run 1 is pending", event.what]


def test_after_a_change_of_priority_the_message_is_visible_in_the_other_queue() -> None:
    [*_, change] = task_history(pending().with_priority("high", NOW + MINUTE))
    assert change.facts == {"priority": "high", "message": "visible"}


def test_a_task_created_by_a_server_whose_clock_is_ahead_is_still_defined_before_it_is_pending() -> None:
    first, second = task_history(with_last_run(pending(), scheduled=NOW - MINUTE))
    assert first.what.startswith("defined")
    assert first.time == second.time == format_time(NOW - MINUTE)
