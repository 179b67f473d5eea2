import re

from legacy_queue.domain.priority import (
    PRIORITIES,
    WorkQueue,
    at_least,
    direction,
    work_queues,
)


def test_the_highest_priority_comes_first_and_so_does_its_queue() -> None:
    queues = work_queues("provisioner", "worker-Type_1")
    ranks = {queue.priority: queue.name("queue")[-2:] for queue in queues}
    assert [*ranks] == [*PRIORITIES]
    assert (ranks["highest"], ranks["very-low"], ranks["lowest"]) == ("-7", "-2", "-1")
    assert at_least("medium") == ("highest", "very-high", "high", "medium")
    assert [direction("medium", priority) for priority in PRIORITIES] == ["raise"] * 3 + [""] + ["lower"] * 3


def test_the_queues_of_a_pool_have_valid_names() -> None:
    names = {queue.name("q") for queue in work_queues("provisioner", "type")}
    assert len(names) == len(PRIORITIES)
    assert all(re.fullmatch("q-[a-z2-7]{24}-[a-z2-7]{24}-[1-7]", name) for name in names)


def test_the_name_of_a_queue_is_two_hashes_and_the_rank_of_its_priority() -> None:
    # printf %s NAME | openssl dgst -sha256 -binary | head -c 15 | base32 | tr A-Z a-z
    highest = WorkQueue("provisioner", "worker-Type_1", "highest")
    assert highest.name("q") == "q-aeqyvxzppuw3etvqd6ypvpqx-24uedbzms6cjwbqkgxpijg6m-7"
    lowest = WorkQueue("a", "WORKER", "lowest")
    assert lowest.name("q") == "q-zklycewkdo64v6wcggzzui64-orua5jvkxmg5es72ex3rxelr-1"
