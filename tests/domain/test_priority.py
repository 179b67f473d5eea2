import pytest

from legacy_queue.domain.priority import PRIORITIES, WorkQueue, at_least, work_queues


def test_the_queues_of_a_pool_are_sorted_from_the_highest_priority() -> None:
    queues = work_queues("provisioner", "worker-Type_1")
    assert [queue.priority for queue in queues] == [
        "highest",
        "very-high",
        "high",
        "medium",
        "low",
        "very-low",
        "lowest",
    ]
    assert [queue.name("queue")[-2:] for queue in queues] == [f"-{rank}" for rank in (7, 6, 5, 4, 3, 2, 1)]


def test_at_least_a_priority_are_the_priority_and_all_higher_priorities() -> None:
    assert at_least("highest") == ("highest",)
    assert at_least("medium") == ("highest", "very-high", "high", "medium")
    assert at_least("lowest") == PRIORITIES


@pytest.mark.parametrize(
    # printf %s NAME | openssl dgst -sha256 -binary | head -c 15 | base32 | tr A-Z a-z
    ("provisioner_id", "worker_type", "priority", "name"),
    [
        (
            "provisioner",
            "worker-Type_1",
            "highest",
            "q-aeqyvxzppuw3etvqd6ypvpqx-24uedbzms6cjwbqkgxpijg6m-7",
        ),
        ("a", "WORKER", "lowest", "q-zklycewkdo64v6wcggzzui64-orua5jvkxmg5es72ex3rxelr-1"),
    ],
)
def test_the_name_of_a_queue_is_made_of_hashes_and_the_rank(
    provisioner_id: str, worker_type: str, priority: str, name: str
) -> None:
    assert WorkQueue(provisioner_id, worker_type, priority).name("q") == name
