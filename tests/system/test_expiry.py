"""Short claims on a server without resolvers: the held message becomes visible at takenUntil."""

import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from .http_queue import Message, Queue, definition
from .processes import LONG, SHORT_CLAIM, wait_until, work

POLL_INTERVAL = 0.2  # seconds between two polls of a worker
on_memory = pytest.mark.parametrize("short_claims_server", ["memory"], indirect=True)
on_azurite = pytest.mark.parametrize("short_claims_server", ["azurite"], indirect=True)


def next_message(queue: Queue, worker_type: str) -> Message:
    urls = queue.poll_urls(worker_type)[-1]

    def poll() -> list[Message]:
        time.sleep(POLL_INTERVAL)
        return queue.poll_one(urls)

    [message] = wait_until(poll)
    return message


def claim_next(queue: Queue, worker_type: str) -> tuple[Message, Queue]:
    """Claim with the next message; the queue with the credentials of the claim."""
    message = next_message(queue, worker_type)
    claim = queue.claim(message)
    assert claim.status_code == 200, claim.text
    return message, queue.with_credentials(claim.json()["credentials"])


def test_a_poll_after_taken_until_gets_the_next_run(short_claims: Queue, worker_type: str) -> None:
    task_id = short_claims.create(definition(worker_type))
    first, dead = claim_next(short_claims, worker_type)
    assert first.run == (task_id, 0)
    taken_until = short_claims.status(task_id)["runs"][0]["takenUntil"]

    second = next_message(short_claims, worker_type)
    assert second.run == (task_id, 1)
    assert datetime.now(UTC) >= datetime.fromisoformat(taken_until)
    assert short_claims.runs(task_id) == [("running", None)]
    assert dead.on_run((task_id, 0), "reclaim").status_code == 409

    claim = short_claims.claim(second, "two")
    assert claim.status_code == 200, claim.text
    assert claim.json()["runId"] == 1
    assert short_claims.runs(task_id) == [("exception", "claim-expired"), ("running", None)]
    assert [dead.on_run((task_id, 0), verb).status_code for verb in ("reclaim", "completed")] == [409, 409]
    assert dead.on_run((task_id, 1), "completed").status_code == 403

    alive = short_claims.with_credentials(claim.json()["credentials"])
    assert alive.on_run((task_id, 1), "completed").status_code == 200
    status = short_claims.status(task_id)
    assert (status["state"], status["retriesLeft"]) == ("completed", 4)
    assert short_claims.pending(worker_type) == 0


@on_azurite
def test_the_next_worker_runs_the_task_of_a_killed_worker_after_taken_until(
    short_claims: Queue, worker_type: str, tmp_path: Path
) -> None:
    queue = short_claims
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"test $RUN_ID != 0 || {{ echo $$ > {pid}; exec sleep 60; }}"]
    task_id = queue.create(definition(worker_type, payload={"command": command}))
    with work(tmp_path / "killed", queue.server, worker_type) as killed:
        wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"))
        killed.end(signal.SIGKILL)
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert queue.runs(task_id) == [("running", None)]
    with work(tmp_path / "next", queue.server, worker_type, "--max-tasks", "1") as next_worker:
        assert next_worker.wait() == 0
    claimed = [step["run_id"] for step in next_worker.steps if step["event"] == "claim"]
    assert claimed == [1]
    status = queue.status(task_id)
    assert queue.runs(task_id) == [("exception", "claim-expired"), ("completed", "completed")]
    assert status["retriesLeft"] == 4
    assert status["runs"][1]["reasonCreated"] == "retry"
    assert queue.on_run((task_id, 0), "reclaim").status_code == 409
    assert queue.on_run((task_id, 0), "completed").status_code == 409
    assert queue.pending(worker_type) == 0


@on_memory
def test_a_task_that_runs_longer_than_a_claim_is_reclaimed_and_completed(
    short_claims: Queue, worker_type: str, tmp_path: Path
) -> None:
    command = ["sleep", str(SHORT_CLAIM + 1)]
    task_id = short_claims.create(definition(worker_type, payload={"command": command}))
    with work(tmp_path, short_claims.server, worker_type, "--max-tasks", "1") as worker:
        assert worker.wait() == 0
    assert "reclaim" in worker.step_names
    assert short_claims.runs(task_id) == [("completed", "completed")]


@on_memory
def test_the_worker_stops_a_canceled_task_at_its_next_reclaim(
    short_claims: Queue, worker_type: str, tmp_path: Path
) -> None:
    payload = {"command": ["sleep", str(LONG)]}
    task_id = short_claims.create(definition(worker_type, payload=payload))
    with work(tmp_path, short_claims.server, worker_type, "--max-tasks", "1") as worker:
        worker.wait_for("run")
        short_claims.ask("POST", f"/task/{task_id}/cancel")
        assert worker.wait() == 0
    assert worker.step_names[-1] == "claim-lost"
    assert short_claims.runs(task_id) == [("exception", "canceled")]
