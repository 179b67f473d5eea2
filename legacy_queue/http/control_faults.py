"""``/control/v1``: faults, the messages in queues, and the requests that the server saw.

Source: docs/reference/control.md.
"""

from collections.abc import Mapping
from typing import Any

from legacy_queue.domain.times import format_time
from legacy_queue.http.control_endpoint import control_endpoint
from legacy_queue.http.endpoint import Answer, Call
from legacy_queue.services.peeking import PeekedMessage

_REQUESTS = 100  # by default


@control_endpoint("GET", "/control/v1/faults", "List Faults", output="control-faults")
def list_faults(call: Call) -> Answer:
    """The faults in force, the oldest first, and how often each has happened."""
    return {"faults": call.authorize_control().faults.list()}


@control_endpoint(
    "POST", "/control/v1/faults", "Add Fault", input="control-new-fault", output="control-fault"
)
def add_fault(call: Call) -> Answer:
    """Have something happen to requests: an error, a delay, a connection that is closed without an answer.

    Of several faults for a request, the one that was added first happens, until its times are over.
    """
    return call.authorize_control().faults.add(call.body)


@control_endpoint("DELETE", "/control/v1/faults/<faultId>", "Remove Fault", output="control-fault")
def remove_fault(call: Call) -> Answer:
    """The fault happens no more; the answer says how often it did."""
    return call.authorize_control().faults.remove(call.params["faultId"])


@control_endpoint(
    "GET", "/control/v1/messages/<provisionerId>/<workerType>", "List Messages", output="control-messages"
)
def list_messages(call: Call) -> Answer:
    """The messages in the queues of a worker type, highest priority first; none is received.

    Memory storage shows all of them, Azurite and Azure the first 32 visible ones of each priority: hidden is
    the number of those that are not shown.
    """
    pool = call.params["provisionerId"], call.params["workerType"]
    peeked = call.authorize_control().peeking.messages(*pool)
    messages = [_message(one) for one in peeked.messages]
    return {"taskQueueId": "/".join(pool), "messages": messages, "hidden": peeked.hidden}


@control_endpoint(
    "GET", "/control/v1/requests", "List Requests", query=("after", "limit"), output="control-requests"
)
def list_requests(call: Call) -> Answer:
    """The last requests that the server answered, 100 by default, oldest first; with after, the first ones
    behind the one of that sequence number. The last 10,000 are kept, without those to /control/v1 and
    /events. The status 0 is that of a request that got no answer.
    """
    journal = call.authorize_control().journal
    after = int(call.query["after"]) if "after" in call.query else None
    return {"requests": journal.requests(int(call.query.get("limit", _REQUESTS)), after)}


def _message(one: PeekedMessage) -> Mapping[str, Any]:
    run = {"taskId": one.run[0], "runId": one.run[1]} if one.run else {}
    return {
        **run,
        "priority": one.priority,
        "visibleIn": one.visible_in.total_seconds(),
        "dequeueCount": one.dequeue_count,
        "messageId": one.message_id,
        "inserted": format_time(one.inserted),
    }


FAULT_ENDPOINTS = (list_faults, add_fault, remove_fault, list_messages, list_requests)
