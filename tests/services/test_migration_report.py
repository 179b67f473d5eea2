"""What the migration report says about the recorded calls."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from legacy_queue.domain.call_statistics import (
    CLAIM_TASK,
    CLAIM_WORK,
    POLL,
    POLL_TASK_URLS,
    TODAYS_CLAIM_WORK,
    Caller,
    Calls,
    CallStatistics,
)
from legacy_queue.domain.times import format_time
from legacy_queue.services.inspection.migration_report import protocols_in_use
from tests.domain.sample_tasks import HOUR, NOW, SECOND

ALL = ("messageId", "receipt", "signature")
AT = "2030-01-02T03:04:05.678Z"
Use = tuple[str, str, tuple[str, ...]]  # the method, the caller, and which proofs were missing


def use(method: str, caller: str = "group/alice", missing: Sequence[str] = ()) -> Use:
    return method, caller, tuple(missing)


def recorded(use: Use, ago: timedelta = timedelta(0), first_ago: timedelta | None = None) -> Caller:
    method, caller, missing = use
    calls = Calls(1, NOW - (ago if first_ago is None else first_ago), NOW - ago)
    return Caller("p", "w", caller, CallStatistics({(method, missing): calls}))


def report_of(*uses: Use) -> Any:
    """The report on a pool that got one call of each use. The calls were a second apart, the last at NOW."""
    records = [recorded(one, before * SECOND) for before, one in enumerate(reversed(uses))]
    (worker_type,) = protocols_in_use(records, NOW - HOUR, NOW)["workerTypes"]
    return worker_type


def test_a_caller_is_listed_with_all_its_calls_if_it_called_in_the_requested_time() -> None:
    before, at = use(CLAIM_TASK, "before"), use(CLAIM_TASK, "at")
    found = protocols_in_use([recorded(before, HOUR + SECOND), recorded(at, HOUR, 9 * HOUR)], NOW - HOUR, NOW)
    assert (found["since"], found["until"]) == ("2030-01-02T02:04:05.678Z", AT)
    ((call,),) = (pool["calls"] for pool in found["workerTypes"])
    assert call == {
        "method": CLAIM_TASK,
        "missing": [],
        "caller": "at",
        "count": 1,
        "first": format_time(NOW - 9 * HOUR),
        "last": format_time(NOW - HOUR),
    }


def test_the_record_begins_with_the_first_call_but_not_before_the_time_for_which_calls_are_kept() -> None:
    assert protocols_in_use([], NOW - 5 * HOUR, NOW).get("recordedSince") is None
    for hours_ago, begun in (((2, 1, 3), 3), ((6,), 5)):
        rows = [recorded(use(CLAIM_TASK), first_ago=hours * HOUR) for hours in hours_ago]
        assert protocols_in_use(rows, NOW - 5 * HOUR, NOW)["recordedSince"] == format_time(NOW - begun * HOUR)


def test_a_worker_type_is_ready_if_its_workers_call_only_claim_work() -> None:
    for method in (CLAIM_WORK, TODAYS_CLAIM_WORK):
        of = report_of(use(method), use(CLAIM_WORK, "group/bob"))
        assert of["claimWork"] == {"ready": True, "blockers": [], "inTheWay": [], "toBeMoved": []}
    of = report_of(use(POLL_TASK_URLS, "client"))
    assert of["claimWork"]["blockers"][1:] == ["no worker called claimWork"]
    why = ["no worker called claimTask, so there is nothing to judge by"]
    assert (of["required"]["blockers"], of["required"]["possible"]) == (why, False)


def test_callers_of_the_older_methods_block_claim_work() -> None:
    of = report_of(
        use(CLAIM_WORK),
        use(POLL_TASK_URLS, "client"),
        use(POLL, "client"),
        use(CLAIM_TASK, "group/bob"),
        use(CLAIM_TASK, "group/bob", ALL),
    )
    assert of["claimWork"]["blockers"] == [
        "client called pollTaskUrls: once at 2030-01-02T03:04:02.678Z",
        "client polled: once at 2030-01-02T03:04:03.678Z",
        f"group/bob called claimTask: 2 times, last at {AT}",
    ]
    assert of["claimWork"]["inTheWay"] == of["claimWork"]["blockers"]  # the name of this key in 0.1.0
    assert of["claimWork"]["toBeMoved"] == ["client", "group/bob"]


def test_a_worker_must_be_moved_unless_its_last_call_was_claim_work() -> None:
    back_and_forth = [use(CLAIM_WORK, "group/back"), use(CLAIM_TASK, "group/back")]
    moved = [use(CLAIM_TASK, "group/moved"), use(CLAIM_WORK, "group/moved")]
    of = report_of(*back_and_forth, *moved)
    assert of["claimWork"]["toBeMoved"] == ["group/back"]
    assert len(of["claimWork"]["blockers"]) == 1
