"""pollTaskUrls. The tests in tests/stores show that the URLs work."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

from tests.services.harness import (
    CLAIM_TIMEOUT,
    POLL_VISIBILITY,
    PREFIX,
    PROVISIONER,
    WORKER_TYPE,
    Harness,
    Message,
)

MILLISECOND = timedelta(milliseconds=1)


def test_the_urls_are_ordered_from_the_highest_priority_to_the_lowest() -> None:
    answer = Harness().services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "client")
    assert [set(queue) for queue in answer["queues"]] == [{"signedPollUrl", "signedDeleteUrl"}] * 7
    ranks = [urlsplit(queue["signedPollUrl"]).path.split("/")[-2][-1] for queue in answer["queues"]]
    assert ranks == list("7654321")


def test_the_urls_are_valid_from_15_minutes_ago_for_30_minutes_from_now() -> None:
    answer = Harness().services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "client")
    assert answer["expires"] == "2030-01-02T03:34:05.678Z"
    for queue in answer["queues"]:
        query = parse_qs(urlsplit(queue["signedPollUrl"]).query)
        assert query["visibilitytimeout"] == ["300"]
        assert query["st"][0].startswith("2030-01-02T02:49:0")
        assert query["se"][0].startswith("2030-01-02T03:34:0")


def test_the_messages_of_a_task_are_in_the_queue_of_its_priority() -> None:
    harness = Harness()
    task = harness.task(harness.create(priority="high"))
    queue = harness.account.queue(task.work_queue.name(PREFIX))
    (polled,) = queue.receive(32, POLL_VISIBILITY)
    harness.claim(Message.read(polled))
    assert queue.receive(32, POLL_VISIBILITY) == []
    harness.clock.advance(CLAIM_TIMEOUT)
    (held,) = queue.receive(32, POLL_VISIBILITY)
    assert Message.read(held).run_id == 1
