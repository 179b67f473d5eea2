"""The deployed protocol: the worker claims with its name alone and deletes the message itself."""

from urllib.parse import quote

import requests

from .conftest import ON_EACH_STORAGE
from .http_queue import Queue, definition, delete
from .processes import LONG

pytestmark = ON_EACH_STORAGE


def test_a_task_follows_the_sequence_chart_of_the_deployed_protocol(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(definition(worker_type))

    # Worker -> Queue: pollTaskUrls
    urls = queue.poll_urls(worker_type)
    assert all(sorted(pair) == ["signedDeleteUrl", "signedPollUrl"] for pair in urls)
    template = urls[-1]["signedDeleteUrl"]
    assert "{{messageId}}" in template
    assert "{{popReceipt}}" in template

    # Worker -> Azure Queue: get(signedPollUrls[i++ % n])
    [message] = queue.poll_one(urls[-1])
    assert message.run == (task_id, 0)
    assert message.dequeue_count == 1

    # Worker -> Queue: claimTask
    claim = queue.claim_by_name(task_id, 0)
    assert claim.status_code == 200, claim.text

    # Worker -> Azure Queue: Delete <PopReceipt/>, URI encoded
    url = template.replace("{{messageId}}", message.message_id)
    url = url.replace("{{popReceipt}}", quote(message.receipt, safe=""))
    assert requests.delete(url, timeout=LONG).status_code == 204
    assert requests.delete(url, timeout=LONG).status_code == 404
    assert queue.pending(worker_type) == 0
    assert queue.poll(worker_type) == []

    # reclaims before takenUntil
    holder = queue.with_credentials(claim.json()["credentials"])
    reclaimed = holder.on_run((task_id, 0), "reclaim")
    assert reclaimed.status_code == 200, reclaimed.text
    runs = reclaimed.json()["status"]["runs"]
    assert runs[0]["takenUntil"] > claim.json()["status"]["runs"][0]["takenUntil"]

    # Worker -> Queue: reportCompleted
    assert holder.on_run((task_id, 0), "completed").json()["status"]["state"] == "completed"
    assert queue.pending(worker_type) == 0


def test_a_delete_with_a_wrong_receipt_is_refused(queue: Queue, worker_type: str) -> None:
    queue.create(definition(worker_type))
    urls = queue.poll_urls(worker_type)[-1]
    [message] = queue.poll_one(urls)
    first = requests.delete(
        urls["signedDeleteUrl"]
        .replace("{{messageId}}", message.message_id)
        .replace("{{popReceipt}}", quote("AAAAMAAAABBBBCCCCDDDD+/=", safe="")),
        timeout=LONG,
    )
    assert first.status_code == 400
    assert queue.pending(worker_type) == 1
    assert delete(urls, message) == 204


def test_the_task_continues_after_a_second_worker_got_a_conflict_and_deleted_the_message(
    queue: Queue, worker_type: str
) -> None:
    task_id = queue.create(definition(worker_type))
    urls = queue.poll_urls(worker_type)[-1]
    [message] = queue.poll_one(urls)
    assert queue.claim_by_name(task_id, 0, "first").status_code == 200
    assert queue.claim_by_name(task_id, 0, "second").status_code == 409
    assert delete(urls, message) in (204, 404)
    assert queue.runs(task_id) == [("running", None)]
    assert queue.pending(worker_type) == 0


def test_workers_of_both_protocols_share_a_worker_type(queue: Queue, worker_type: str) -> None:
    task = definition(worker_type)
    tasks = {queue.create(task), queue.create(task)}
    urls = queue.poll_urls(worker_type)[-1]
    first, second = queue.poll_one(urls, 2)
    assert queue.claim(first, "draft").status_code == 200
    assert queue.claim_by_name(*second.run, "deployed").status_code == 200
    assert delete(urls, second) == 204
    assert {first.task_id, second.task_id} == tasks
    assert queue.pending(worker_type) == 0
    assert queue.poll(worker_type) == []
