"""The draft and the deployed protocol on each storage, step by step as their charts show them."""

import base64
import json
from urllib.parse import quote

import pytest
import requests
from lxml import etree

from .conftest import ON_EACH_STORAGE
from .http_queue import Message, Queue, definition, delete
from .processes import LONG

pytestmark = [ON_EACH_STORAGE, pytest.mark.processes]

PARTS = [
    "DequeueCount",
    "ExpirationTime",
    "InsertionTime",
    "MessageId",
    "MessageText",
    "PopReceipt",
    "TimeNextVisible",
]


def test_a_task_follows_the_sequence_chart_of_the_draft(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(definition(worker_type, scopes=["some:scope"]))

    # Worker -> Queue: pollTaskUrls; Queue --> Worker: signedPollUrls
    urls = queue.poll_urls(worker_type)
    assert len(urls) == 7

    # Worker -> PolledQueue: get(signedPollUrls[i++ % n]); PolledQueue --> Worker: XML message list
    empty = requests.get(urls[0]["signedPollUrl"], timeout=LONG).content
    assert etree.fromstring(empty).tag == "QueueMessagesList"
    polled = requests.get(urls[-1]["signedPollUrl"] + "&numofmessages=2", timeout=LONG)
    [element] = etree.fromstring(polled.content)
    assert element.tag == "QueueMessage"
    assert sorted(part.tag for part in element) == PARTS

    # base64 decodes the MessageText and parses it as JSON
    content = json.loads(base64.b64decode(element.findtext("MessageText", ""), validate=True))
    assert sorted(content) == ["runId", "signature", "taskId"]
    message = Message(element.findtext("MessageId", ""), element.findtext("PopReceipt", ""), 1, content)
    queue.server.secrets.update((message.receipt, content["signature"]))
    assert message.run == (task_id, 0)

    # Worker -> Queue: claimTask; Queue -> Worker: status
    claim = queue.claim(message)
    assert claim.status_code == 200, claim.text
    claimed = claim.json()
    run = claimed["status"]["runs"][0]
    assert (run["state"], run["workerGroup"], run["workerId"]) == ("running", "group", "one")

    # the queue holds the message, which is invisible, whatever the worker deletes
    assert queue.poll(worker_type) == []
    assert delete(urls[-1], message) in (400, 404)

    # while calling queue.reclaimTask(taskId, runId)
    holder = queue.with_credentials(claimed["credentials"])
    reclaimed = holder.on_run((task_id, 0), "reclaim")
    assert reclaimed.status_code == 200, reclaimed.text
    assert reclaimed.json()["takenUntil"] > claimed["takenUntil"]
    assert queue.poll(worker_type) == []

    # Worker -> Queue: reportException; the held message is of the next run
    holder = queue.with_credentials(reclaimed.json()["credentials"])
    assert holder.on_run((task_id, 0), "exception", {"reason": "worker-shutdown"}).status_code == 200
    [again] = queue.poll(worker_type)
    assert again.run == (task_id, 1)


def test_a_task_follows_the_sequence_chart_of_the_deployed_protocol(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(definition(worker_type))

    # Worker -> Queue: pollTaskUrls; Worker -> Azure Queue: get(signedPollUrls[i++ % n])
    urls = queue.poll_urls(worker_type)[-1]
    template = urls["signedDeleteUrl"]
    [message] = queue.poll_one(urls)
    assert (message.run, message.dequeue_count) == ((task_id, 0), 1)

    # Worker -> Queue: claimTask; a second worker gets a conflict
    claim = queue.claim_by_name(task_id, 0)
    assert claim.status_code == 200, claim.text
    assert queue.claim_by_name(task_id, 0, "second").status_code == 409

    # Worker -> Azure Queue: Delete <PopReceipt/>, URI encoded
    url = template.replace("{{messageId}}", message.message_id)
    wrong = url.replace("{{popReceipt}}", quote("AAAAMAAAABBBBCCCCDDDD+/=", safe=""))
    url = url.replace("{{popReceipt}}", quote(message.receipt, safe=""))
    refused, *others = [requests.delete(each, timeout=LONG).status_code for each in (wrong, url, url)]
    assert refused in (400, 404)  # of Azurite, of Azure
    assert others == [204, 404]
    assert queue.poll(worker_type) == []

    # reclaims before takenUntil; Worker -> Queue: reportCompleted
    holder = queue.with_credentials(claim.json()["credentials"])
    assert holder.on_run((task_id, 0), "reclaim").status_code == 200
    assert holder.on_run((task_id, 0), "completed").json()["status"]["state"] == "completed"
    assert queue.pending(worker_type) == 0
