"""A claim that ends though no resolver runs: message invisibility enforces takenUntil, for whoever polls."""

import time
from datetime import UTC, datetime

from .http_queue import Message, Queue, definition, delete, storage_access
from .processes import Server, wait_until

POLL_INTERVAL = 0.2  # seconds between two polls of a worker


def next_message(queue: Queue, worker_type: str) -> Message:
    urls = queue.poll_urls(worker_type)[-1]
    [message] = wait_until(lambda: queue.poll_one(urls) or time.sleep(POLL_INTERVAL))
    return message


def claim_next(queue: Queue, worker_type: str) -> tuple[Message, Queue]:
    """The next message, and the queue as the holder of its claim sees it."""
    message = next_message(queue, worker_type)
    claim = queue.claim(message)
    assert claim.status_code == 200, claim.text
    return message, queue.with_credentials(claim.json()["credentials"])


def test_after_taken_until_the_next_poller_gets_the_next_run(short_claims: Queue, worker_type: str) -> None:
    task_id = short_claims.create(definition(worker_type))
    first, dead = claim_next(short_claims, worker_type)
    assert first.run == (task_id, 0)
    taken_until = short_claims.status(task_id)["runs"][0]["takenUntil"]

    second = next_message(short_claims, worker_type)
    assert second.run == (task_id, 1)
    assert datetime.now(UTC) >= datetime.fromisoformat(taken_until), "not before takenUntil"
    assert short_claims.runs(task_id) == [("running", None)], "nobody has claimed yet"
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


def test_without_retries_left_the_task_ends_with_its_claim(short_claims: Queue, worker_type: str) -> None:
    task_id = short_claims.create(definition(worker_type, retries=0))
    _, dead = claim_next(short_claims, worker_type)
    message = next_message(short_claims, worker_type)
    assert message.run == (task_id, 1)
    refused = short_claims.claim(message, "two")
    assert refused.status_code == 409
    assert "no retries are left" in refused.json()["message"]
    status = short_claims.status(task_id)
    assert (status["state"], status["retriesLeft"]) == ("exception", 0)
    assert short_claims.runs(task_id) == [("exception", "claim-expired")]
    assert [dead.on_run((task_id, 0), verb).status_code for verb in ("reclaim", "completed")] == [409, 409]
    assert short_claims.pending(worker_type) == 0, "nobody is led to it any more"


def test_a_claim_in_the_deployed_protocol_expires_in_the_same_way(
    short_claims: Queue, worker_type: str
) -> None:
    task_id = short_claims.create(definition(worker_type))
    urls = short_claims.poll_urls(worker_type)[-1]
    [message] = short_claims.poll_one(urls)
    assert short_claims.claim_by_name(task_id, 0).status_code == 200
    assert delete(urls, message) == 204
    second, alive = claim_next(short_claims, worker_type)
    assert second.run == (task_id, 1)
    assert second.message_id != message.message_id
    assert alive.on_run((task_id, 1), "completed").status_code == 200
    assert short_claims.runs(task_id) == [("exception", "claim-expired"), ("completed", "completed")]


def test_the_next_run_is_not_given_away_while_the_claim_lasts(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(definition(worker_type))
    claim_next(queue, worker_type)
    early = queue.claim_by_name(task_id, 1, "two")
    assert early.status_code == 503, "a worker whose clock is ahead keeps its message"
    assert "Retry-After" in early.headers
    assert queue.runs(task_id) == [("running", None)]


def test_a_lost_held_message_harms_nothing_while_the_worker_lives(
    azurite_server: Server, worker_type: str
) -> None:
    queue = Queue(azurite_server)
    task_id = queue.create(definition(worker_type))
    _, alive = claim_next(queue, worker_type)
    with storage_access(azurite_server, queue.poll_urls(worker_type)[-1]) as messages:
        messages.clear_messages()
    assert alive.on_run((task_id, 0), "reclaim").status_code == 200
    with storage_access(azurite_server, queue.poll_urls(worker_type)[-1]) as messages:
        count = messages.get_queue_properties().approximate_message_count
        assert count == 1, "the reclaim has held another"
        messages.clear_messages()
    assert alive.on_run((task_id, 0), "exception", {"reason": "worker-shutdown"}).status_code == 200
    assert next_message(queue, worker_type).run == (task_id, 1)


def test_a_lost_held_message_harms_nothing_but_that_nobody_is_told_after_taken_until(
    short_claims: Queue, worker_type: str
) -> None:
    """What resolvers are for: after takenUntil the task looks running, and nobody who polls is led to it.

    Whoever names the next run gets it even so: the table decides.
    """
    task_id = short_claims.create(definition(worker_type))
    _, dead = claim_next(short_claims, worker_type)
    urls = short_claims.poll_urls(worker_type)[-1]
    [lost] = wait_until(lambda: short_claims.poll_one(urls) or time.sleep(POLL_INTERVAL))
    assert delete(urls, lost) == 204

    # what is missing without them
    assert short_claims.pending(worker_type) == 0
    assert short_claims.poll(worker_type) == []
    assert short_claims.runs(task_id) == [("running", None)]

    # what holds even so
    assert dead.on_run((task_id, 0), "reclaim").status_code == 409
    claim = short_claims.claim(lost, "two")
    assert claim.status_code == 200, claim.text
    assert claim.json()["runId"] == 1
    assert short_claims.pending(worker_type) == 0
    alive = short_claims.with_credentials(claim.json()["credentials"])
    assert alive.on_run((task_id, 1), "completed").status_code == 200
    assert short_claims.runs(task_id) == [("exception", "claim-expired"), ("completed", "completed")]
