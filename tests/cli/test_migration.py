# ruff: noqa: E501 - a wide table
"""``legacy-queue migration``: it asks a real server, or a fake server."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from legacy_queue.cli.migration import migration
from tests.cli.fake_server import answering
from tests.system.http_queue import Queue, definition
from tests.system.processes import Server, client_env, serve

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
SINCE, UNTIL = "2018-03-03T05:06:07.890Z", "2018-03-04T05:06:07.890Z"
NOTHING = ["messageId", "receipt", "signature"]
NOT_BEFORE = "Nothing is on record before <time>: earlier callers are not known."
CLAIMANTS = "They are of the workers that claimed from <time> to <time>."
Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with calls for two worker types: ``whole`` as in the draft, ``bare`` as in the deployed protocol."""
    with serve(tmp_path_factory.mktemp("server"), "--storage", "memory") as server:
        queue = Queue(server)
        queue.create(definition("whole"))
        [message] = queue.poll("whole")
        assert queue.claim(message).status_code == 200
        for number in range(2):
            task_id = queue.create(definition("bare"))
            assert queue.claim_by_name(task_id, 0, f"worker-{number}").status_code == 200
        yield server


def asked(root_url: str, credentials: Json, *options: str) -> Result:
    return CliRunner().invoke(migration, options, env=client_env(root_url, credentials))


def shown(server: Server, *options: str) -> str:
    result = asked(server.root_url, server.credentials, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return re.sub(TIME, "<time>", result.output)


def test_a_dry_run_shows_the_claims_that_would_be_refused(server: Server) -> None:
    assert sorted(shown(server, "--dry-run", "required", "--since", "2h").splitlines()) == sorted(
        [
            "Under the policy required, 2 of 3 claims would have been refused.",
            CLAIMANTS,
            NOT_BEFORE,
            "",
            "WORKER TYPE  WORKER          REFUSED  MISSING                        LAST",
            "system/bare  group/worker-1        1  messageId, receipt, signature  <time>",
            "system/bare  group/worker-0        1  messageId, receipt, signature  <time>",
        ]
    )


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
        result = asked(root_url, CREDENTIALS)
    assert result.output.splitlines() == [
        f"Callers from {SINCE} to {UNTIL}, with all their calls on record",
        "",
        "WORKER TYPE  pollTaskUrls  claimTask  unsigned  no receipt  bare  claimWork  today's  REQUIRED  CLAIMWORK",
        "p/mixed                 -          1         7         110  1000          -        -  not yet   not yet",
        "p/moved                 -          -         -           -     -          5        3  -         ready",
        "p/forced                -          1         -           -     -          -        -  in force  not yet",
        "p/moving                1          -         -           -     -          1        -  -         not yet",
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
