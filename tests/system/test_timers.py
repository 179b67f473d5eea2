"""Claims and deadlines end by timers, in three processes on one queue.

All tasks begin at once, and each test waits for its own.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from legacy_queue.adapters.azurite import Azurite
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import Json, Queue, definition, in_time, slugid, storage_access
from .listeners import Listener, listening
from .processes import serve, wait_until

CLAIM = 10  # seconds that a claim lasts
SOON = 8  # seconds until the deadlines
MANY = 30
TYPE, LOST, CROWD = "timed", "lost", "crowd"  # worker types

EXPIRED, RETRIED = ("exception", "claim-expired"), ("pending", None)
MISSED = ("exception", "deadline-exceeded")
RUNNING = ("defined", "pending 0", "running 0 one")


@dataclass
class Begun:
    """The tasks by their names in the tests, and a crowd of equal tasks."""

    queue: Queue
    listener: Listener
    tasks: dict[str, str] = field(default_factory=dict)
    crowd: list[str] = field(default_factory=list)
    reclaimed_until: str = ""

    def create(self, name: str, worker_type: str = TYPE, **changes: Any) -> str:
        task_id = self.tasks[name] = slugid()
        self.queue.ask("PUT", f"/task/{task_id}", definition(worker_type, **changes))
        return task_id

    def claim(self, task_id: str) -> Queue:
        """Claim run 0; the queue with the credentials of the claim."""
        claim = self.queue.claim_by_name(task_id, 0)
        assert claim.status_code == 200, claim.text
        return self.queue.with_credentials(claim.json()["credentials"])

    def ended(self, name: str) -> Json:
        """The task's status once its first run is resolved."""

        def resolved() -> Json | None:
            status = self.queue.status(self.tasks[name])
            return status if status["runs"] and "resolved" in status["runs"][0] else None

        return wait_until(resolved)

    def runs(self, name: str) -> list[tuple[str, str | None]]:
        return self.queue.runs(self.tasks[name])

    def wait_for(self, name: str, *lines: str) -> None:
        self.listener.wait_for({self.tasks[name]: list(lines)})


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite, rabbitmq: RabbitMQ) -> Iterator[Begun]:
    env = on_account(azurite, rabbitmq.url)
    options = ("--workers", "3", "--claim-timeout", f"{CLAIM}s")
    with (
        serve(tmp_path_factory.mktemp("timed"), *options, env=env) as server,
        listening(rabbitmq.url, server.root_url) as listener,
    ):
        begun = Begun(as_root(server), listener)
        begin_claims(begun)
        begin_deadlines(begun)
        begin_crowd(begun)
        yield begun


def begin_claims(begun: Begun) -> None:
    begun.claim(begun.create("retried"))
    begun.claim(begun.create("not retried", retries=0))
    begun.create("waits", dependencies=[begun.tasks["not retried"]], requires="all-resolved")
    begun.claim(begun.create("lost", LOST))
    with storage_access(begun.queue.server, begun.queue.poll_urls(LOST)[-1]) as messages:
        messages.clear_messages()
    reclaimed = begun.create("reclaimed")
    reclaim = begun.claim(reclaimed).on_run((reclaimed, 0), "reclaim")
    assert reclaim.status_code == 200, reclaim.text
    begun.reclaimed_until = reclaim.json()["takenUntil"]


def begin_deadlines(begun: Begun) -> None:
    def soon() -> str:
        return in_time(seconds=SOON)

    unscheduled = begun.tasks["unscheduled"] = slugid()
    begun.queue.ask("POST", f"/task/{unscheduled}/define", definition(TYPE, deadline=soon()))
    begun.claim(begun.create("running", deadline=soon()))
    completed = begun.create("completed", deadline=soon())
    assert begun.claim(completed).on_run((completed, 0), "completed").status_code == 200
    begun.create("pending", deadline=soon())


def begin_crowd(begun: Begun) -> None:
    queue = begun.queue
    with ThreadPoolExecutor(8) as pool:
        begun.crowd = list(pool.map(lambda _: queue.create(definition(CROWD)), range(MANY)))
        claims = list(pool.map(queue.claim, queue.poll(CROWD, 32)))
    assert [claim.status_code for claim in claims] == [200] * MANY


def test_a_deadline_ends_an_unscheduled_task_with_a_run_that_names_the_deadline(begun: Begun) -> None:
    status = begun.ended("unscheduled")
    assert begun.runs("unscheduled") == [MISSED]
    [run] = status["runs"]
    assert run["reasonCreated"] == "exception"
    assert run["resolved"] >= status["deadline"]
    begun.wait_for("unscheduled", "defined", "exception 0 deadline-exceeded", "group-resolved")


def test_a_deadline_ends_a_pending_task(begun: Begun) -> None:
    status = begun.ended("pending")
    assert begun.runs("pending") == [MISSED]
    assert status["runs"][0]["resolved"] >= status["deadline"]
    begun.wait_for("pending", "defined", "pending 0", "exception 0 deadline-exceeded", "group-resolved")


def test_a_deadline_ends_a_running_task_and_names_its_worker(begun: Begun) -> None:
    status = begun.ended("running")
    [run] = status["runs"]
    assert status["deadline"] <= run["resolved"]
    assert status["deadline"] < run["takenUntil"]
    assert begun.runs("running") == [MISSED]
    begun.wait_for("running", *RUNNING, "exception 0 one deadline-exceeded", "group-resolved")


def test_a_deadline_does_not_change_a_resolved_task(begun: Begun) -> None:
    begun.ended("pending")  # its deadline is later
    begun.wait_for("pending", "defined", "pending 0", "exception 0 deadline-exceeded", "group-resolved")
    assert begun.runs("completed") == [("completed", "completed")]
    begun.wait_for("completed", *RUNNING, "completed 0 one", "group-resolved")


def test_a_claim_without_a_reclaim_expires_and_the_task_is_pending_again(begun: Begun) -> None:
    status = begun.ended("retried")
    assert begun.runs("retried") == [EXPIRED, RETRIED]
    assert status["retriesLeft"] == 4
    first, second = status["runs"]
    assert first["takenUntil"] <= first["resolved"] <= second["scheduled"]
    assert second["reasonCreated"] == "retry"
    begun.wait_for("retried", *RUNNING, "pending 1")


def test_a_task_without_retries_ends_with_its_claim(begun: Begun) -> None:
    begun.ended("not retried")
    assert begun.runs("not retried") == [EXPIRED]
    begun.wait_for("not retried", *RUNNING, "exception 0 one claim-expired", "group-resolved")


def test_a_dependent_is_pending_after_the_claim_of_its_dependency_expired(begun: Begun) -> None:
    begun.wait_for("waits", "defined", "pending 0")


def test_a_reclaimed_claim_expires_at_its_new_taken_until(begun: Begun) -> None:
    [first, _] = begun.ended("reclaimed")["runs"]
    assert first["takenUntil"] == begun.reclaimed_until <= first["resolved"]
    begun.wait_for("reclaimed", *RUNNING, "pending 1")


def test_a_lost_held_message_is_replaced_after_the_claim_expired(begun: Begun) -> None:
    begun.ended("lost")
    [message] = wait_until(lambda: begun.queue.poll(LOST))
    assert message.run == (begun.tasks["lost"], 1)
    assert begun.queue.claim(message, "two").status_code == 200
    begun.wait_for("lost", *RUNNING, "pending 1", "running 1 two")


def test_three_processes_expire_each_of_thirty_claims_once(begun: Begun) -> None:
    begun.listener.wait_for({task_id: [*RUNNING, "pending 1"] for task_id in begun.crowd})
    for task_id in begun.crowd:
        assert begun.queue.runs(task_id) == [EXPIRED, RETRIED]
        assert begun.queue.status(task_id)["retriesLeft"] == 4
    # each run has a single message: the held one
    polled = [message.run for message in begun.queue.poll(CROWD, 32)]
    assert sorted(polled) == sorted((task_id, 1) for task_id in begun.crowd)


def test_the_server_logs_no_error(begun: Begun) -> None:
    assert [line for line in begun.queue.server.errors.splitlines() if '"level": "error"' in line] == []
