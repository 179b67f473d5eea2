"""The draft protocol: messages are signed, and the queue holds a message while a worker has the claim."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import requests
from lxml import etree

from .conftest import ON_EACH_STORAGE
from .http_queue import Message, Queue, definition, delete
from .processes import LONG

pytestmark = ON_EACH_STORAGE

PARTS = [
    "MessageId",
    "InsertionTime",
    "ExpirationTime",
    "PopReceipt",
    "TimeNextVisible",
    "DequeueCount",
    "MessageText",
]
PRIORITIES = ["highest", "very-high", "high", "medium", "low", "very-low", "lowest"]


def test_a_task_follows_the_sequence_chart_of_the_draft(queue: Queue, worker_type: str) -> None:
    task = definition(worker_type, scopes=["some:scope"])
    task_id = queue.create(task)

    # Worker -> Queue: pollTaskUrls; Queue --> Worker: signedPollUrls
    answer = queue.ask("GET", f"/poll-task-url/system/{worker_type}")
    assert sorted(answer) == ["expires", "queues"]
    urls = queue.poll_urls(worker_type)
    assert len(urls) == len(PRIORITIES)

    # Worker -> PolledQueue: get(signedPollUrls[i++ % n]); PolledQueue --> Worker: XML message list
    for empty in urls[:-1]:
        assert etree.fromstring(requests.get(empty["signedPollUrl"], timeout=LONG).content).tag == (
            "QueueMessagesList"
        )
    polled = requests.get(urls[-1]["signedPollUrl"] + "&numofmessages=2", timeout=LONG)
    assert polled.status_code == 200
    messages = etree.fromstring(polled.content)
    assert messages.tag == "QueueMessagesList"
    [element] = messages
    assert element.tag == "QueueMessage"
    assert sorted(part.tag for part in element) == sorted(PARTS)

    # base64 decodes the MessageText and parses it as JSON
    content = json.loads(base64.b64decode(element.findtext("MessageText", ""), validate=True))
    assert sorted(content) == ["runId", "signature", "taskId"]
    assert (content["taskId"], content["runId"]) == (task_id, 0)
    message = Message(element.findtext("MessageId", ""), element.findtext("PopReceipt", ""), 1, content)
    queue.server.secrets.update((message.receipt, content["signature"]))

    # Worker -> Queue: claimTask; Queue -> Worker: status
    claim = queue.claim(message)
    assert claim.status_code == 200, claim.text
    claimed = claim.json()
    assert claimed["runId"] == 0
    assert claimed["task"]["scopes"] == ["some:scope"]
    run = claimed["status"]["runs"][0]
    assert (run["state"], run["workerGroup"], run["workerId"]) == ("running", "group", "one")
    assert run["takenUntil"] == claimed["takenUntil"]

    # the queue holds the message, which is invisible
    assert queue.pending(worker_type) == 0
    assert queue.poll(worker_type) == []

    # while calling queue.reclaimTask(taskId, runId)
    holder = queue.with_credentials(claimed["credentials"])
    reclaimed = holder.on_run((task_id, 0), "reclaim")
    assert reclaimed.status_code == 200, reclaimed.text
    assert reclaimed.json()["takenUntil"] > claimed["takenUntil"]
    assert "task" not in reclaimed.json()
    assert queue.poll(worker_type) == []

    # Worker -> Queue: reportCompleted
    holder = queue.with_credentials(reclaimed.json()["credentials"])
    assert holder.on_run((task_id, 0), "completed").status_code == 200
    assert queue.status(task_id)["state"] == "completed"
    assert queue.runs(task_id) == [("completed", "completed")]
    assert queue.pending(worker_type) == 0


def test_poll_urls_are_in_the_order_of_priority(queue: Queue, worker_type: str) -> None:
    tasks = {
        queue.create(definition(worker_type, priority=priority)): priority for priority in PRIORITIES[::-1]
    }
    polled = [queue.poll_one(urls) for urls in queue.poll_urls(worker_type)]
    assert [[tasks[message.task_id] for message in messages] for messages in polled] == [
        [priority] for priority in PRIORITIES
    ]


def test_a_worker_polls_32_messages_at_once_and_claims_them_all(queue: Queue, worker_type: str) -> None:
    task = definition(worker_type)
    tasks = {queue.create(task) for _ in range(33)}
    messages = queue.poll(worker_type, 32)
    assert len({message.task_id for message in messages}) == 32
    claimed = [queue.claim(message).status_code for message in messages]
    assert claimed == [200] * 32
    [last] = queue.poll(worker_type, 32)
    assert {message.task_id for message in [*messages, last]} == tasks
    assert queue.poll(worker_type, 32) == []


def test_of_two_workers_that_claim_at_the_same_time_only_one_succeeds(queue: Queue, worker_type: str) -> None:
    for _ in range(5):
        task_id = queue.create(definition(worker_type))
        [message] = queue.poll(worker_type)
        barrier = Barrier(2)

        def claim(worker: str, message: Message = message, barrier: Barrier = barrier) -> int:
            barrier.wait(LONG)
            return queue.claim(message, worker).status_code

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(claim, ["one", "two"]))
        assert sorted(answers) == [200, 409]
        winner = ["one", "two"][answers.index(200)]
        status = queue.status(task_id)
        assert [(run["state"], run["workerId"]) for run in status["runs"]] == [("running", winner)]


def test_a_delete_after_the_claim_leaves_the_held_message_in_place(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(definition(worker_type))
    urls = queue.poll_urls(worker_type)[-1]
    [message] = queue.poll_one(urls)
    holder = queue.with_credentials(queue.claim(message).json()["credentials"])
    assert delete(urls, message) in (400, 404)
    assert queue.pending(worker_type) == 0
    assert holder.on_run((task_id, 0), "reclaim").status_code == 200
    assert holder.on_run((task_id, 0), "exception", {"reason": "worker-shutdown"}).status_code == 200
    [again] = queue.poll(worker_type)
    assert again.run == (task_id, 1)
