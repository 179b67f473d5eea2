# ruff: noqa: E501 - a wide table
"""``legacy-queue migration`` prints a report as a table."""

import json

from tests.cli.command_runner import answering, ask_at, printed

SINCE, UNTIL = "2018-03-03T05:06:07.890Z", "2018-03-04T05:06:07.890Z"


def call(method: str, *missing: str, count: int = 1) -> dict[str, object]:
    times = {"first": SINCE, "last": UNTIL}
    return {"method": method, "caller": "g/a", "missing": [*missing], "count": count, **times}


def worker_type(name: str, *calls: object, **changes: object) -> dict[str, object]:
    moved = [f"g/{number}" for number in range(12)]
    return {
        "provisionerId": "p",
        "workerType": name,
        "policy": "optional",
        "calls": list(calls),
        "required": {"possible": False, "blockers": ["a claim lacks something"], "refused": 1},
        "claimWork": {"ready": False, "blockers": ["a worker claims"], "toBeMoved": moved},
        **changes,
    }


def test_the_table_shows_every_verdict() -> None:
    nothing = ("messageId", "receipt", "signature")
    claims = [call("claimTask", *nothing[:n], count=10**n) for n in range(4)]
    ready = {"ready": True, "blockers": [], "toBeMoved": []}
    worker_types = [
        worker_type("mixed", *claims, call("claimTask", "signature", count=7), call("claimWork")),
        worker_type("moved", call("claimWork"), call("claimWork by taskQueueId", count=3), claimWork=ready),
        worker_type("forced", call("pollTaskUrls"), call("claimTask"), policy="required", claimWork=ready),
    ]
    report = {"since": SINCE, "until": UNTIL, "recordedSince": SINCE, "workerTypes": worker_types}
    with answering((200, json.dumps(report))) as url:
        result = ask_at(url, "migration")
    assert printed(result).splitlines() == [
        "2 of 3 pools are ready for claimWork.",
        f"Callers from {SINCE} to {UNTIL}, with all their recorded calls:",
        "",
        "POOL      CAN REQUIRE PROOF  READY FOR CLAIMWORK  URLS  FULL PROOF  NO SIGNATURE  NO ID/RECEIPT  NO PROOF  CLAIMWORK 2018  CLAIMWORK TODAY",
        "p/mixed   not yet            not yet                 -           1             7            110      1000               1                -",
        "p/moved   -                  yes                     -           -             -              -         -               1                3",
        "p/forced  in force           yes                     1           1             -              -         -               -                -",
        "",
        "p/mixed is blocked by:",
        "  proof:     a claim lacks something",
        "  claimWork: a worker claims",
        "  still to move: g/0, g/1, g/2, g/3, g/4, g/5, g/6, g/7, g/8, g/9 and 2 more",
        "",
        "p/forced is blocked by:",
        "  proof:     a claim lacks something",
    ]
