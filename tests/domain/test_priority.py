import re

from legacy_queue.domain.priority import (
    MAX_SHARDS,
    PRIORITIES,
    WorkQueue,
    at_least,
    direction,
    rotated,
    work_queues,
)


def test_priorities_are_ordered_from_the_highest_as_their_queues_are() -> None:
    queues = work_queues("provisioner", "worker-Type_1")
    ranks = {queue.priority: queue.name("queue")[-2:] for queue in queues}
    assert [*ranks] == [*PRIORITIES]
    assert (ranks["highest"], ranks["very-low"], ranks["lowest"]) == ("-7", "-2", "-1")
    assert at_least("medium") == ("highest", "very-high", "high", "medium")
    assert [direction("medium", priority) for priority in PRIORITIES] == ["raise"] * 3 + [""] + ["lower"] * 3


def test_a_poll_begins_with_another_shard_each_time_and_with_the_highest_priority() -> None:
    queues = work_queues("provisioner", "worker-Type_1", 3)
    orders = [rotated(queues, turn) for turn in range(3)]
    assert [[queue.shard for queue in order[:3]] for order in orders] == [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    for order in orders:
        assert [queue.priority for queue in order[::3]] == [*PRIORITIES]
        assert {*order} == {*queues}


def test_the_queues_of_all_shards_have_valid_names_and_the_first_those_without_shards() -> None:
    names = [queue.name("q") for queue in work_queues("provisioner", "type", MAX_SHARDS)]
    assert len({*names}) == 4 * 7
    assert all(re.fullmatch("q-[a-z2-7]{24}-[a-z2-7]{24}-[1-9a-s]", name) for name in names)
    assert names[::MAX_SHARDS] == [queue.name("q") for queue in work_queues("provisioner", "type")]


def test_the_name_of_a_queue_is_made_of_hashes_and_the_rank() -> None:
    # printf %s NAME | openssl dgst -sha256 -binary | head -c 15 | base32 | tr A-Z a-z
    highest = WorkQueue("provisioner", "worker-Type_1", "highest")
    assert highest.name("q") == "q-aeqyvxzppuw3etvqd6ypvpqx-24uedbzms6cjwbqkgxpijg6m-7"
    lowest = WorkQueue("a", "WORKER", "lowest")
    assert lowest.name("q") == "q-zklycewkdo64v6wcggzzui64-orua5jvkxmg5es72ex3rxelr-1"
