"""``legacy-queue migration`` after workers of each generation worked on two servers that share an account."""

import json
from pathlib import Path
from typing import Any

from legacy_queue.adapters.azurite import Azurite

from .accounts import ROOT, as_root, on_account
from .fleet import HttpWorker
from .http_queue import Queue, definition
from .processes import Server, run, serve, wait_until

BARE = ["messageId", "receipt", "signature"]


def migration(folder: Path, server: Server, *options: str) -> str:
    """The output of the command."""
    env = {
        "LEGACY_QUEUE_ROOT_URL": server.root_url,
        "TASKCLUSTER_CLIENT_ID": ROOT["clientId"],
        "TASKCLUSTER_ACCESS_TOKEN": ROOT["accessToken"],
    }
    with run(folder, "migration", *options, env=env) as command:
        assert command.wait() == 0, command.errors
    return command.output


def verdicts(report: Any) -> dict[str, Any]:
    """Of each worker type of a report: its calls, claims, refused claims, and whether it is ready."""
    return {
        entry["workerType"]: {
            "calls": sorted((call["method"], call["caller"], call["missing"]) for call in entry["calls"]),
            "claims": sum(call["count"] for call in entry["calls"] if call["method"] == "claimTask"),
            "refused": entry["required"]["refused"],
            "required": entry["required"]["possible"],
            "ready": entry["claimWork"]["ready"],
        }
        for entry in report["workerTypes"]
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
        "calls": [("claimWork", "http/claimwork", [])],
        "claims": 0,
        "refused": 0,
        "required": False,
        "ready": True,
    },
    "deployed": {
        "calls": [("claimTask", "http/deployed", BARE), ("pollTaskUrls", "root", [])],
        "claims": 2,
        "refused": 2,
        "required": False,
        "ready": False,
    },
    "draft": {
        "calls": [("claimTask", "http/draft", []), ("pollTaskUrls", "root", [])],
        "claims": 2,
        "refused": 0,
        "required": True,
        "ready": False,
    },
}


def work_through(queue: Queue, protocol: str) -> None:
    """A worker runs two tasks of a worker type that has the name of its protocol."""
    worker = HttpWorker(queue, protocol, protocol, protocol)
    for _ in range(2):
        queue.create(definition(protocol))
        worker.finish(worker.wait_for_claim())


def claim_bare(queue: Queue) -> None:
    """A worker claims a task without polling for it."""
    task_id = queue.create(definition("bare"))
    assert queue.claim_by_name(task_id, 0, "bare").status_code == 200


def test_the_report_covers_all_servers_and_survives_a_restart(tmp_path: Path, azurite: Azurite) -> None:
    env, folder = on_account(azurite), tmp_path / "migration"
    with (
        serve(tmp_path / "server-1", env=env) as first,
        serve(tmp_path / "server-2", "--workers", "2", env=env) as second,
    ):
        queues = [as_root(first), as_root(second)]
        for number, protocol in enumerate(("draft", "deployed", "claimwork")):
            work_through(queues[number % 2], protocol)
        for queue in queues:
            claim_bare(queue)
        path = "/migration?provisionerId=system"
        # each server reads the counts of the other after some seconds
        wait_until(lambda: all(verdicts(queue.ask("GET", path)) == EXPECTED for queue in queues))
        for queue in queues:
            claim_bare(queue)
        assert [server.end() for server in (first, second)] == [0, 0]
    bare = EXPECTED["bare"] | {"claims": 4, "refused": 4}
    with serve(tmp_path / "server-3", env=env) as server:
        report = json.loads(migration(folder, server, "--json", "--provisioner", "system"))
        assert verdicts(report) == EXPECTED | {"bare": bare}, "a server writes its counts when it ends"
        table = [
            line.split() for line in migration(folder, server).splitlines() if line.startswith("system/")
        ]
        assert [(words[0], " ".join(words[8:])) for words in table] == [
            ("system/bare", "not yet not yet"),
            ("system/claimwork", "- ready"),
            ("system/deployed", "not yet not yet"),
            ("system/draft", "can be not yet"),
        ]
        assert "6 of 8 claims" in migration(folder, server, "--dry-run", "required")
