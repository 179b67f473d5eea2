# ruff: noqa: E501 - a wide table
"""``legacy-queue migration``: the table that it makes of a report."""

import json
from typing import Any

from click.testing import CliRunner

from legacy_queue.cli.migration import migration
from tests.cli.fake_server import answering
from tests.system.processes import client_env

SINCE, UNTIL = "2018-03-03T05:06:07.890Z", "2018-03-04T05:06:07.890Z"
NOTHING = ["messageId", "receipt", "signature"]
Json = dict[str, Any]


CREDENTIALS = {"clientId": "a-client", "accessToken": "x" * 30}


def call(method: str, caller: str, *missing: str, count: int = 1) -> Json:
    return {
        "method": method,
        "caller": caller,
        "missing": list(missing),
        "count": count,
        "first": SINCE,
        "last": UNTIL,
    }


def worker_type(name: str, *calls: Json, **changes: Any) -> Json:
    return {
        "provisionerId": "p",
        "workerType": name,
        "policy": "optional",
        "calls": list(calls),
        "required": {"possible": False, "inTheWay": ["a claim lacks something"], "refused": 1},
        "claimWork": {"ready": False, "inTheWay": ["a worker claims"], "toBeMoved": []},
        **changes,
    }


TODAYS = {**call("claimWork by taskQueueId", "g/a"), "count": 3}
READY = {"ready": True, "inTheWay": [], "toBeMoved": []}


def test_the_table_shows_every_verdict() -> None:
    report = {
        "since": SINCE,
        "until": UNTIL,
        "recordedSince": SINCE,
        "workerTypes": [
            worker_type(
                "mixed",
                *(call("claimTask", "g/a", *NOTHING[:n], count=10**n) for n in range(4)),
                call("claimTask", "g/a", "signature", count=7),
            ),
            worker_type("moved", call("claimWork", "g/a", count=5), TODAYS, claimWork=READY),
            worker_type("forced", call("claimTask", "g/a"), policy="required"),
            worker_type(
                "moving",
                call("claimWork", "g/moved"),
                call("pollTaskUrls", "client"),
                claimWork={
                    "ready": False,
                    "inTheWay": ["a worker claims"],
                    "toBeMoved": [f"g/{number}" for number in range(12)],
                },
            ),
        ],
    }
    with answering((200, json.dumps(report))) as root_url:
        result = CliRunner().invoke(migration, env=client_env(root_url, CREDENTIALS))
    assert result.output.splitlines() == [
        f"Callers from {SINCE} to {UNTIL}, with all their calls on record",
        "",
        "POOL      pollTaskUrls  claimTask  unsigned  no receipt  bare  claimWork  today's  REQUIRED  CLAIMWORK",
        "p/mixed              -          1         7         110  1000          -        -  not yet   not yet",
        "p/moved              -          -         -           -     -          5        3  -         ready",
        "p/forced             -          1         -           -     -          -        -  in force  not yet",
        "p/moving             1          -         -           -     -          1        -  -         not yet",
        "",
        "In the way of p/mixed:",
        "  required:  a claim lacks something",
        "  claimWork: a worker claims",
        "",
        "In the way of p/forced:",
        "  required:  a claim lacks something",
        "  claimWork: a worker claims",
        "",
        "In the way of p/moving:",
        "  claimWork: a worker claims",
        "  still to be moved: g/0, g/1, g/2, g/3, g/4, g/5, g/6, g/7, g/8, g/9 and 2 more",
    ]
