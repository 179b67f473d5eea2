"""``pool-shards``: several queues for each priority of a pool."""

import re
from collections.abc import Iterable
from urllib.parse import parse_qs, urlsplit

from legacy_queue.domain.priority import MAX_SHARDS, PRIORITIES, WorkQueue, rotated, work_queues
from legacy_queue.services.composition import Services
from tests.services.harness import ALICE, CLAIM_TIMEOUT, MINUTE, PREFIX, PROVISIONER, WORKER_TYPE, Harness

SHARDS = 3
QUEUES = work_queues(PROVISIONER, WORKER_TYPE, SHARDS)


def with_shards(number: int) -> Harness:
    """A server with so many shards."""
    harness = Harness()
    harness.services = harness.replica(shards=number)
    return harness


def claimed(services: Services, count: int = 32) -> list[str]:
    """The taskIds that claimWork answers at once."""
    answer = services.claim_work.claim(
        PROVISIONER, WORKER_TYPE, ALICE, count, lambda: False, max_wait=MINUTE * 0
    )
    return [claim["status"]["taskId"] for claim in answer["tasks"]]


def with_messages(harness: Harness, queues: Iterable[WorkQueue] = QUEUES) -> list[int]:
    """The shards that have a message, of a pool whose tasks have one priority."""
    return [queue.shard for queue in queues if harness.messages(queue)]


def test_the_queues_of_all_shards_have_valid_names_and_the_first_those_without_shards() -> None:
    names = [queue.name(PREFIX) for queue in work_queues(PROVISIONER, WORKER_TYPE, MAX_SHARDS)]
    assert len({*names}) == 4 * 7
    assert all(re.fullmatch("q-[a-z2-7]{24}-[a-z2-7]{24}-[1-9a-s]", name) for name in names)
    assert names[::MAX_SHARDS] == [queue.name(PREFIX) for queue in work_queues(PROVISIONER, WORKER_TYPE)]


def test_a_poll_begins_with_another_shard_each_time_and_with_the_highest_priority() -> None:
    orders = [rotated(QUEUES, turn) for turn in range(SHARDS)]
    assert [[queue.shard for queue in order[:SHARDS]] for order in orders] == [
        [0, 1, 2],
        [2, 0, 1],
        [1, 2, 0],
    ]
    for order in orders:
        assert [queue.priority for queue in order[::SHARDS]] == [*PRIORITIES]
        assert {*order} == {*QUEUES}


def test_tasks_are_spread_over_the_queues_and_each_worker_of_the_draft_completes_its_own() -> None:
    harness = with_shards(SHARDS)
    tasks = {harness.create() for _ in range(20)}
    assert with_messages(harness) == [0, 1, 2]
    for queue in QUEUES:
        for message in harness.receive(queue=queue):
            tasks.remove(message.task_id)
            harness.claim(message)
            harness.services.claims.reclaim(message.task_id, 0)
            harness.shut_down(message.task_id)
            (again,) = harness.receive(queue=queue)
            assert (again.task_id, again.run_id) == (message.task_id, 1)
            harness.claim(again)
            harness.complete(message.task_id, 1)
    assert not tasks
    assert with_messages(harness) == []


def test_no_shard_waits_for_the_others() -> None:
    harness = with_shards(SHARDS)
    queue = WorkQueue(PROVISIONER, WORKER_TYPE, "lowest")
    shards = {
        task_id: queue.sharded(task_id, SHARDS).shard for task_id in (harness.create() for _ in range(60))
    }
    first = [shards[task_id] for _ in range(SHARDS) for task_id in claimed(harness.services, 1)]
    assert {*first} == {0, 1, 2}


def test_after_their_number_was_raised_all_tasks_are_found_and_no_message_stays() -> None:
    harness = with_shards(1)
    tasks = {harness.create() for _ in range(10)}
    running = {*claimed(harness.services, 5)}
    harness.services = harness.replica(shards=SHARDS)
    for task_id in running:
        harness.complete(task_id)
    assert {*claimed(harness.services)} == tasks - running
    for task_id in tasks - running:
        harness.complete(task_id)
    harness.clock.advance(CLAIM_TIMEOUT + MINUTE)  # the messages of the old number are visible
    assert claimed(harness.services) == []
    assert with_messages(harness) == []


def test_after_their_number_was_lowered_the_sweeper_offers_what_is_not_polled() -> None:
    harness = with_shards(SHARDS)
    tasks = {harness.create() for _ in range(10)}
    harness.services = harness.replica(shards=1)
    found = {*claimed(harness.services)}
    assert found < tasks
    for task_id in found:
        harness.complete(task_id)
    for _ in range(2):
        harness.sweep(11 * MINUTE)
    assert {*claimed(harness.services)} == tasks - found


def test_a_worker_gets_urls_of_all_queues_from_15_minutes_ago_for_30_minutes_from_now() -> None:
    """The tests in tests/stores show that the URLs work."""
    answer = with_shards(SHARDS).services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "client")
    assert answer["expires"] == "2030-01-02T03:34:05.678Z"
    assert len(answer["queues"]) == len(QUEUES)
    for queue in answer["queues"]:
        query = parse_qs(urlsplit(queue["signedPollUrl"]).query)
        assert query["visibilitytimeout"] == ["300"]
        assert query["st"][0].startswith("2030-01-02T02:49:0")
        assert query["se"][0].startswith("2030-01-02T03:34:0")
