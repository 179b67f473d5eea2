"""What the migration report makes of the calls on record."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage_key import (
    CLAIM_TASK,
    CLAIM_WORK,
    NOT_RECORDED,
    POLL_TASK_URLS,
    TODAYS_CLAIM_WORK,
    Calls,
    UsageKey,
    caller_name,
    report,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
ALL = ("messageId", "receipt", "signature")
AT = "2030-01-02T03:04:05.678Z"


def use(method: str, caller: str = "group/alice", missing: Sequence[str] = (), pool: str = "p/w") -> UsageKey:
    provisioner_id, worker_type = pool.split("/")
    return UsageKey(provisioner_id, worker_type, method, caller, tuple(missing))


def recorded(
    key: UsageKey, count: int = 1, ago: timedelta = timedelta(0), first_ago: timedelta | None = None
) -> tuple[UsageKey, Calls]:
    return key, Calls(count, NOW - (ago if first_ago is None else first_ago), NOW - ago)


def report_of(*uses: UsageKey) -> Any:
    """The report on a worker type with one call of each use, a second after each other, the last at NOW."""
    rows = [recorded(key, ago=before * SECOND) for before, key in enumerate(reversed(uses))]
    (worker_type,) = report(rows, NOW - HOUR, NOW)["workerTypes"]
    return worker_type


def counts(worker_type: Any) -> dict[UsageKey, int]:
    pool = worker_type["provisionerId"], worker_type["workerType"]
    return {
        UsageKey(*pool, call["method"], call["caller"], tuple(call["missing"])): call["count"]
        for call in worker_type["calls"]
    }


@pytest.mark.parametrize(
    ("client_id", "name"),
    [
        ("development", "development"),
        ("mozilla-ldap/somebody@example.com/laptop", "mozilla-ldap/somebody@example.com/laptop"),
        (
            "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/alice/until/1893553445",
            "task-client/*/on/group/alice",
        ),
        ("task-client/VLdaX5vAQ0iW8JIr3sGQZw/12/on/group/alice/until/1", "task-client/*/on/group/alice"),
        ("task-client/of/somebody/else", "task-client/of/somebody/else"),
        ("x" * 1000, "x" * 255),
    ],
)
def test_a_caller_is_named_by_its_client_id_without_the_task(client_id: str, name: str) -> None:
    assert caller_name(client_id) == name


def test_rows_of_the_same_caller_are_added_up() -> None:
    claim = use(CLAIM_TASK)
    rows = [recorded(claim, 2, HOUR), recorded(claim, 3), recorded(claim, 4, SECOND, 9 * HOUR)]
    (worker_type,) = report(rows, NOW - 2 * HOUR, NOW)["workerTypes"]
    (call,) = worker_type["calls"]
    assert call == {
        "method": CLAIM_TASK,
        "missing": [],
        "caller": "group/alice",
        "count": 9,
        "first": format_time(NOW - 9 * HOUR),
        "last": AT,
    }


def test_a_caller_is_listed_if_its_last_call_was_in_the_requested_time() -> None:
    before, at = use(CLAIM_TASK, "before"), use(CLAIM_TASK, "at")
    found = report([recorded(before, 1, HOUR + SECOND), recorded(at, 1, HOUR)], NOW - HOUR, NOW)
    assert [list(counts(pool)) for pool in found["workerTypes"]] == [[at]]
    assert (found["since"], found["until"]) == ("2030-01-02T02:04:05.678Z", AT)


def test_calls_that_are_not_recorded_are_counted_and_belong_to_no_worker_type() -> None:
    rows = [recorded(NOT_RECORDED, 3), recorded(NOT_RECORDED, 4, MINUTE), recorded(NOT_RECORDED, 9, 2 * HOUR)]
    found = report(rows, NOW - HOUR, NOW)
    assert (found["notRecorded"], found["workerTypes"]) == (7, [])


def test_calls_that_are_not_recorded_are_in_the_way_of_required_and_of_claim_work() -> None:
    rows = [recorded(use(CLAIM_TASK)), recorded(use(CLAIM_WORK, pool="p/x")), recorded(NOT_RECORDED, 3)]
    required, claim_work = report(rows, NOW - HOUR, NOW)["workerTypes"]
    (sentence,) = required["required"]["inTheWay"]
    assert sentence.endswith(": 3")
    assert not required["required"]["possible"]
    assert sentence in claim_work["claimWork"]["inTheWay"]
    assert sentence in claim_work["required"]["inTheWay"]


@pytest.mark.parametrize(
    ("hours_ago", "recorded_since"),
    [
        ([], None),
        ([0], NOW),
        ([2, 1, 3], NOW - 3 * HOUR),
        ([1, 5], NOW - 5 * HOUR),
        ([6], NOW - 5 * HOUR),
    ],
)
def test_the_record_begins_with_the_first_call_and_not_before_the_window(
    hours_ago: list[int], recorded_since: datetime | None
) -> None:
    rows = [recorded(use(CLAIM_TASK), 2, timedelta(0), hours * HOUR) for hours in hours_ago]
    found = report(rows, NOW - 5 * HOUR, NOW).get("recordedSince")
    assert found == (recorded_since and format_time(recorded_since))


@pytest.mark.parametrize("uses", [[use(POLL_TASK_URLS, "client")], [use(CLAIM_WORK)]], ids=["polls", "works"])
def test_the_required_policy_is_not_possible_before_a_worker_has_called_claim_task(
    uses: list[UsageKey],
) -> None:
    required = report_of(*uses)["required"]
    assert required["inTheWay"] == ["no worker called claimTask: there is nothing to judge by"]
    assert not required["possible"]


@pytest.mark.parametrize("missing", [ALL, ("signature",), ("receipt",), ("messageId", "receipt")], ids=str)
def test_a_claim_with_a_missing_field_is_in_the_way_of_the_required_policy(missing: tuple[str, ...]) -> None:
    bob = use(CLAIM_TASK, "group/bob", missing)
    of = report_of(use(CLAIM_TASK), bob)
    sentence = f"group/bob called claimTask without {', '.join(missing)}: once at {AT}"
    assert of["required"] == {"possible": False, "inTheWay": [sentence], "refused": 1}


def test_each_set_of_missing_fields_is_a_sentence_with_up_to_three_callers() -> None:
    bare = [use(CLAIM_TASK, f"group/{number}", ALL) for number in range(5)]
    unsigned = [use(CLAIM_TASK, f"group/{name}", ["signature"]) for name in "abc"]
    nothing_presented, not_signed = report_of(*unsigned, *bare)["required"]["inTheWay"]
    assert nothing_presented == (
        "group/4, group/3, group/2 and 2 more called claimTask without messageId, receipt, signature: "
        f"5 times, last at {AT}"
    )
    assert not_signed == (
        "group/c, group/b, group/a called claimTask without signature: "
        "3 times, last at 2030-01-02T03:04:00.678Z"
    )


def test_a_worker_type_is_ready_if_its_workers_call_only_claim_work() -> None:
    for method in (CLAIM_WORK, TODAYS_CLAIM_WORK):
        of = report_of(use(method), use(CLAIM_WORK, "group/bob"))
        assert of["claimWork"] == {"ready": True, "inTheWay": [], "toBeMoved": []}


def test_callers_of_the_older_methods_are_in_the_way_of_claim_work() -> None:
    of = report_of(
        use(CLAIM_WORK),
        use(POLL_TASK_URLS, "client"),
        use(CLAIM_TASK, "group/bob"),
        use(CLAIM_TASK, "group/bob", ALL),
    )
    assert of["claimWork"]["inTheWay"] == [
        "client called pollTaskUrls: once at 2030-01-02T03:04:03.678Z",
        f"group/bob called claimTask: 2 times, last at {AT}",
    ]
    assert of["claimWork"]["toBeMoved"] == ["client", "group/bob"]


def test_a_worker_type_is_not_ready_without_any_claim_work() -> None:
    assert report_of(use(POLL_TASK_URLS, "client"))["claimWork"]["inTheWay"][1:] == [
        "no worker called claimWork"
    ]


def test_a_worker_is_to_be_moved_unless_its_last_call_was_claim_work() -> None:
    back_and_forth = [use(CLAIM_WORK, "group/back"), use(CLAIM_TASK, "group/back")]
    moved = [
        use(CLAIM_TASK, "group/moved", ALL),
        use(CLAIM_TASK, "group/moved"),
        use(CLAIM_WORK, "group/moved"),
    ]
    of = report_of(*back_and_forth, *moved)
    assert of["claimWork"]["toBeMoved"] == ["group/back"]
    assert len(of["claimWork"]["inTheWay"]) == 1
