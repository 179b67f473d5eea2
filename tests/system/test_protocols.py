"""The draft and the deployed protocol on each storage, step by step as their charts show them."""

import base64
import json
from urllib.parse import quote

import pytest
import requests
from lxml import etree

from tests.http.calls import claimed, succeeded
from tests.memory_server import Message, messages_of

from .conftest import ON_EACH_STORAGE
from .http_queue import Json, Queue
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
    task_id = queue.create(workerType=worker_type, scopes=["some:scope"])

    # Worker -> Queue: pollTaskUrls; Queue --> Worker: signedPollUrls
    urls = queue.poll_urls(workerType=worker_type)
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
    [message] = map(Message.read, messages_of(polled.content))
    queue.server.secrets.update((message.lease.receipt, message.signature))
    assert message.run == (task_id, 0)

    # Worker -> Queue: claimTask; Queue -> Worker: status
    claim = queue.claim(*message.run, **message.proof_body)
    taken_until = succeeded(claim).get_json()["takenUntil"]
    run = claim.get_json()["status"]["runs"][0]
    assert (run["state"], run["workerGroup"], run["workerId"]) == ("running", "group", "alice")

    # the queue holds the message, which is invisible, whatever the worker deletes
    assert queue.messages(workerType=worker_type) == []
    assert queue.delete(urls[-1]["signedDeleteUrl"], message.lease).status_code in (400, 404)

    # while calling queue.reclaimTask(taskId, runId)
    run_0: Json = {"taskId": task_id, "runId": 0}
    reclaim = succeeded(queue.call("reclaimTask", credentials=claimed(claim), **run_0))
    assert reclaim.get_json()["takenUntil"] > taken_until
    assert queue.messages(workerType=worker_type) == []

    # Worker -> Queue: reportException; the held message is of the next run
    queue.ask("reportException", {"reason": "worker-shutdown"}, credentials=claimed(reclaim), **run_0)
    [again] = queue.messages(workerType=worker_type)
    assert again.run == (task_id, 1)


def test_a_task_follows_the_sequence_chart_of_the_deployed_protocol(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(workerType=worker_type)

    # Worker -> Queue: pollTaskUrls; Worker -> Azure Queue: get(signedPollUrls[i++ % n])
    urls = queue.poll_urls(workerType=worker_type)[-1]
    template = urls["signedDeleteUrl"]
    [message] = queue.poll(urls["signedPollUrl"])
    assert (message.run, message.dequeue_count) == ((task_id, 0), 1)

    # Worker -> Queue: claimTask; a second worker gets a conflict
    claim = queue.claim(task_id, 0)
    assert claim.status_code == 200, claim.text
    assert queue.claim(task_id, 0, workerId="second").status_code == 409

    # Worker -> Azure Queue: Delete <PopReceipt/>, URI encoded
    url = template.replace("{{messageId}}", message.lease.message_id)
    wrong = url.replace("{{popReceipt}}", quote("AAAAMAAAABBBBCCCCDDDD+/=", safe=""))
    url = url.replace("{{popReceipt}}", quote(message.lease.receipt, safe=""))
    refused, *others = [requests.delete(each, timeout=LONG).status_code for each in (wrong, url, url)]
    assert refused in (400, 404)  # of Azurite, of Azure
    assert others == [204, 404]
    assert queue.messages(workerType=worker_type) == []

    # reclaims before takenUntil; Worker -> Queue: reportCompleted
    queue.ask("reclaimTask", credentials=claimed(claim), taskId=task_id, runId=0)
    queue.ask("reportCompleted", credentials=claimed(claim), taskId=task_id, runId=0)
    assert queue.state(task_id) == "completed"
    pool: Json = {"provisionerId": "system", "workerType": worker_type}
    assert queue.ask("pendingTasks", **pool)["pendingTasks"] == 0
