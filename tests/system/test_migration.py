"""``legacy-queue migration``: what workers of each generation did, on two servers that share an account."""

import json
from pathlib import Path
from typing import Any

from legacy_queue.adapters.azurite import Azurite

from .accounts import ROOT, as_root, on_account
from .http_queue import definition
from .processes import Server, run, serve, wait_until, work

BARE = ["messageId", "receipt", "signature"]


def migration(folder: Path, server: Server, *options: str) -> str:
    """What the command prints."""
    env = {
        "LEGACY_QUEUE_ROOT_URL": server.root_url,
        "TASKCLUSTER_CLIENT_ID": ROOT["clientId"],
        "TASKCLUSTER_ACCESS_TOKEN": ROOT["accessToken"],
    }
    with run(folder, "migration", *options, env=env) as command:
        assert command.wait() == 0, command.errors
    return command.output


def verdicts(folder: Path, server: Server) -> dict[str, Any]:
    """Of each worker type: who claims how, how many claims are refused, and what it is ready for."""
    report = json.loads(migration(folder, server, "--json", "--provisioner", "system"))
    return {
        one["workerType"]: {
            "calls": sorted((call["method"], call["caller"], call["missing"]) for call in one["calls"]),
            "claims": sum(call["count"] for call in one["calls"] if call["method"] == "claimTask"),
            "refused": one["required"]["refused"],
            "required": one["required"]["possible"],
            "ready": one["claimWork"]["ready"],
        }
        for one in report["workerTypes"]
    }


EXPECTED = {
    "bare": {
        "calls": [("claimTask", "group/bare", BARE)],
        "claims": 2,
        "refused": 2,
        "required": False,
        "ready": False,
    },
    "claimwork": {
        "calls": [("claimWork", "sample/claimwork", [])],
        "claims": 0,
        "refused": 0,
        "required": False,
        "ready": True,
    },
    "deployed": {
        "calls": [("claimTask", "sample/deployed", BARE), ("pollTaskUrls", "root", [])],
        "claims": 2,
        "refused": 2,
        "required": False,
        "ready": False,
    },
    "draft": {
        "calls": [("claimTask", "sample/draft", []), ("pollTaskUrls", "root", [])],
        "claims": 2,
        "refused": 0,
        "required": True,
        "ready": False,
    },
}


def work_through(folder: Path, server: Server, protocol: str) -> None:
    """A sample worker runs two tasks of a worker type that is named as its protocol."""
    for _ in range(2):
        as_root(server).create(definition(protocol))
    options = ("--protocol", protocol, "--worker-id", protocol, "--max-tasks", "2")
    with work(folder / protocol, server, protocol, *options, credentials=ROOT) as worker:
        assert worker.wait() == 0, worker.errors


def claim_bare(server: Server) -> None:
    """A worker that never polls: somebody else tells it of its tasks."""
    queue = as_root(server)
    task_id = queue.create(definition("bare"))
    assert queue.claim_by_name(task_id, 0, "bare").status_code == 200


def test_a_fleet_is_told_worker_by_worker_also_after_a_restart(tmp_path: Path, azurite: Azurite) -> None:
    env, ask = on_account(azurite), tmp_path / "ask"
    with (
        serve(tmp_path / "server-1", env=env) as first,
        serve(tmp_path / "server-2", "--workers", "2", env=env) as second,
    ):
        work_through(tmp_path, first, "draft")
        work_through(tmp_path, second, "deployed")
        work_through(tmp_path, second, "claimwork")
        claim_bare(first)
        claim_bare(second)
        for server in (first, second):  # what the other one counts is there some seconds later
            wait_until(lambda one=server: verdicts(ask, one) == EXPECTED)
        claim_bare(first)
        claim_bare(second)
        assert [server.end() for server in (first, second)] == [0, 0]
    expected = EXPECTED | {"bare": EXPECTED["bare"] | {"claims": 4, "refused": 4}}
    with serve(tmp_path / "server-3", env=env) as server:
        assert verdicts(ask, server) == expected, "who ends has written down all that it counted"
        table = [line.split() for line in migration(ask, server).splitlines() if line.startswith("system/")]
        assert [(words[0], " ".join(words[8:])) for words in table] == [
            ("system/bare", "not yet not yet"),
            ("system/claimwork", "- ready"),
            ("system/deployed", "not yet not yet"),
            ("system/draft", "can be not yet"),
        ]
        assert "6 of the 8 claims" in migration(ask, server, "--dry-run", "required")
