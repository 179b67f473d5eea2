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
    CountedUsage,
    UsageKey,
    beginning_of_hour,
    client_name,
    report,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
ALL = ("messageId", "receipt", "signature")
AT = "2030-01-02T03:04:05.678Z"


def use(method: str, caller: str = "group/alice", missing: Sequence[str] = (), pool: str = "p/w") -> UsageKey:
    provisioner_id, worker_type = pool.split("/")
    return UsageKey(provisioner_id, worker_type, method, caller, tuple(missing))


def used(*uses: UsageKey) -> Any:
    """What is reported where each was called once, a second after the one before it, the last one at NOW."""
    rows = [counted(one, ago=before * SECOND) for before, one in enumerate(reversed(uses))]
    (worker_type,) = report(rows, NOW - HOUR, NOW)["workerTypes"]
    return worker_type


def calls(worker_type: Any) -> dict[UsageKey, int]:
    """How often each use was called."""
    pool = worker_type["provisionerId"], worker_type["workerType"]
    return {
        UsageKey(*pool, one["method"], one["caller"], tuple(one["missing"])): one["count"]
        for one in worker_type["calls"]
    }


def counted(one: UsageKey, count: int = 1, ago: timedelta = timedelta(0)) -> CountedUsage:
    last = NOW - ago
    return CountedUsage(beginning_of_hour(last), one, Calls(count, last))


def test_an_hour_begins_at_its_first_moment() -> None:
    assert beginning_of_hour(NOW) == datetime(2030, 1, 2, 3, tzinfo=UTC)


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
def test_a_client_is_named_as_itself_but_for_its_task(client_id: str, name: str) -> None:
    assert client_name(client_id) == name


def test_the_calls_of_all_processes_and_hours_are_added_up() -> None:
    claim = use(CLAIM_TASK)
    found = report(
        [
            counted(claim, 2, HOUR),
            counted(claim, 3),
            counted(claim, 4, SECOND),
            counted(use(CLAIM_TASK, "group/bob")),
        ],
        NOW - 2 * HOUR,
        NOW,
    )
    (worker_type,) = found["workerTypes"]
    assert (found["since"], found["until"]) == ("2030-01-02T01:04:05.678Z", AT)
    assert calls(worker_type) == {claim: 9, use(CLAIM_TASK, "group/bob"): 1}
    assert [one["last"] for one in worker_type["calls"]] == [AT, AT]


def test_worker_types_are_told_apart_and_come_by_name() -> None:
    found = report([counted(use(CLAIM_WORK, pool=pool)) for pool in ("p/w", "a/z", "p/a")], NOW - HOUR, NOW)
    worker_types = found["workerTypes"]
    names = [(one["provisionerId"], one["workerType"]) for one in worker_types]
    assert names == [("a", "z"), ("p", "a"), ("p", "w")]
    assert [len(one["calls"]) for one in worker_types] == [1, 1, 1]


def test_who_has_not_called_since_then_is_not_in_the_report() -> None:
    since = NOW - HOUR
    before, at = use(CLAIM_TASK, "before"), use(CLAIM_TASK, "at")
    found = report([counted(before, 1, HOUR + SECOND), counted(at, 1, HOUR)], since, NOW)
    assert [list(calls(one)) for one in found["workerTypes"]] == [[at]]


def test_what_was_not_recorded_is_counted_and_no_worker_types() -> None:
    found = report(
        [counted(NOT_RECORDED, 3), counted(NOT_RECORDED, 4, MINUTE), counted(NOT_RECORDED, 9, 2 * HOUR)],
        NOW - HOUR,
        NOW,
    )
    assert (found["notRecorded"], found["workerTypes"]) == (7, [])


def test_calls_that_are_not_on_record_stand_against_everything() -> None:
    whole = use(CLAIM_TASK)
    rows = [counted(whole), counted(use(CLAIM_WORK, pool="p/x")), counted(NOT_RECORDED, 3)]
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
        ([1, 7], NOW - 5 * HOUR),
    ],
)
def test_the_record_begins_with_what_was_called_first_but_not_before_the_window(
    hours_ago: list[int], recorded_since: datetime | None
) -> None:
    rows = [counted(use(CLAIM_TASK), 1, hours * HOUR) for hours in hours_ago]
    found = report(rows, NOW - 5 * HOUR, NOW).get("recordedSince")
    assert found == (recorded_since and format_time(recorded_since))


def test_calls_are_told_with_the_last_one_first() -> None:
    uses = [use(POLL_TASK_URLS, "client"), use(CLAIM_TASK), use(CLAIM_WORK)]
    assert list(calls(used(*uses))) == uses[::-1]


def test_nothing_stands_against_required_once_every_claim_presents_its_message() -> None:
    of = used(use(POLL_TASK_URLS, "client"), use(CLAIM_TASK), use(CLAIM_TASK, "group/bob"), use(CLAIM_WORK))
    assert of["required"] == {"possible": True, "inTheWay": [], "refused": 0}


@pytest.mark.parametrize("uses", [[use(POLL_TASK_URLS, "client")], [use(CLAIM_WORK)]], ids=["polls", "works"])
def test_without_a_claim_nobody_knows_whether_it_could_be_required(uses: list[UsageKey]) -> None:
    required = used(*uses)["required"]
    assert required["inTheWay"] == ["nobody called claimTask: there is nothing to go by"]
    assert not required["possible"]


@pytest.mark.parametrize("missing", [ALL, ("signature",), ("receipt",), ("messageId", "receipt")], ids=str)
def test_a_claim_that_leaves_something_out_stands_against_required(missing: tuple[str, ...]) -> None:
    bob = use(CLAIM_TASK, "group/bob", missing)
    of = used(use(CLAIM_TASK), bob)
    sentence = f"group/bob called claimTask without {', '.join(missing)}: once at {AT}"
    assert of["required"] == {"possible": False, "inTheWay": [sentence], "refused": 1}


def test_each_way_of_leaving_something_out_is_told_with_a_few_of_those_who_do() -> None:
    bare = [use(CLAIM_TASK, f"group/{number}", ALL) for number in range(5)]
    unsigned = [use(CLAIM_TASK, f"group/{name}", ["signature"]) for name in "abc"]
    nothing_presented, not_signed = used(*unsigned, *bare)["required"]["inTheWay"]
    assert nothing_presented == (
        "group/4, group/3, group/2 and 2 more called claimTask without messageId, receipt, signature: "
        f"5 times, last at {AT}"
    )
    assert not_signed == (
        "group/c, group/b, group/a called claimTask without signature: "
        "3 times, last at 2030-01-02T03:04:00.678Z"
    )


def test_a_worker_type_whose_workers_call_claim_work_alone_is_ready_for_it() -> None:
    for method in (CLAIM_WORK, TODAYS_CLAIM_WORK):
        of = used(use(method), use(CLAIM_WORK, "group/bob"))
        assert of["claimWork"] == {"ready": True, "inTheWay": [], "toBeMoved": []}


def test_whoever_still_speaks_an_older_protocol_stands_against_claim_work() -> None:
    of = used(
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


def test_nobody_who_calls_claim_work_stands_against_it_too() -> None:
    assert used(use(POLL_TASK_URLS, "client"))["claimWork"]["inTheWay"][1:] == ["nobody called claimWork"]


def test_a_worker_has_moved_once_it_has_called_claim_work_last() -> None:
    back_and_forth = [use(CLAIM_WORK, "group/back"), use(CLAIM_TASK, "group/back")]
    moved = [
        use(CLAIM_TASK, "group/moved", ALL),
        use(CLAIM_TASK, "group/moved"),
        use(CLAIM_WORK, "group/moved"),
    ]
    of = used(*back_and_forth, *moved)
    assert of["claimWork"]["toBeMoved"] == ["group/back"]
    assert len(of["claimWork"]["inTheWay"]) == 1
