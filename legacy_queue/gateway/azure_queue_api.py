"""The part of Azure Queue Storage that a worker uses: it receives and deletes messages by signed URLs.

It works with every storage. The query of a request has its SAS, so this module must never log a request.
"""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from urllib.parse import unquote

from flask import Blueprint, Response, request
from lxml import etree
from werkzeug.http import http_date

from legacy_queue.domain.messages import DELETE, RECEIVE, MessageLease
from legacy_queue.domain.poll_caller import poll_caller
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.gateway.azure_protocol import (
    AzureError,
    Faults,
    RecordOf,
    answer,
    authenticated,
    blueprint_of,
    bytes_of_base64,
    check_timeout,
    element,
)
from legacy_queue.gateway.faulty_messages import FaultyMessages
from legacy_queue.ports import Clock, queue
from legacy_queue.stores import Storage

_DENIED = (  # methods that the permission to process does not allow, by the segments after the queue
    ("GET", "HEAD", "PUT", "DELETE"),
    ("GET", "POST", "DELETE"),  # peek, put, clear
    ("PUT",),  # update
)
_ENDPOINTS = {("GET", 1): RECEIVE, ("DELETE", 2): DELETE}  # by method and number of segments after the queue
_MAX_MESSAGES = 32
_MAX_VISIBILITY = 7 * 24 * 60 * 60  # seconds


def azure_queue_api(
    storage: Storage,
    clock: Clock,
    faults: Faults,
    record_of: RecordOf,
    record_poll: Callable[[WorkQueue, str], None],
) -> Blueprint:
    """Serves ``GET /<account>/<queue>/messages`` and ``DELETE /<account>/<queue>/messages/<messageId>``.

    Mount it where the signed URLs point. A SAS may be limited to https, so behind a proxy that ends TLS the
    application must know the scheme of the client. For each poll ``record_poll`` gets the queue, and the
    client that asked for the URL.
    """
    account = storage.account
    name = account.public_queues.account
    key = account.public_queues.key
    faulty = FaultyMessages(faults, record_of, clock)

    def serve(path: str) -> Response:
        segments = [unquote(segment) for segment in path.split("/")]
        queue_name = "".join(segments[1:2])
        resource = segments[2:]
        record = record_of(request.environ)
        record.endpoint = _ENDPOINTS.get((request.method, len(resource)), "azure.other")
        if segments[0] != name or not queue_name:
            raise AzureError("AuthenticationFailed", reason="the URL names another account")
        parameters = authenticated(f"/queue/{name}/{queue_name}", "p", key, clock.wall_time())
        caller = _caller(parameters.pop("si", ""))
        polled = storage.work_queues.named(queue_name)
        record.queue = polled
        record.url_expires = request.args.get("se")
        match request.method, resource:
            case "GET", ["messages"] if parameters.get("peekonly") != "true":
                if polled and caller:
                    record_poll(polled, caller)
                return _receive(account.queue(queue_name), parameters, faulty)
            case "DELETE", ["messages", message_id]:
                return _delete(account.queue(queue_name), message_id, parameters, faulty)
        if resource[:1] not in ([], ["messages"]) or len(resource) >= len(_DENIED):
            raise AzureError("InvalidUri")
        denied = request.method in _DENIED[len(resource)]
        raise AzureError("AuthorizationPermissionMismatch" if denied else "UnsupportedHttpVerb")

    return blueprint_of("azure_queue_api", "/<path:path>", serve, record_of)


def _caller(policy: str) -> str:
    try:
        return policy and poll_caller(policy)
    except ValueError as error:
        raise AzureError("AuthenticationFailed", reason=f"the URL's policy is unknown: {error}") from None


def _receive(source: queue.Queue, parameters: Mapping[str, str], faulty: FaultyMessages) -> Response:
    check_timeout(parameters)
    count = _whole_number(parameters, "numofmessages", 1, _MAX_MESSAGES)
    seconds = _whole_number(parameters, "visibilitytimeout", 30, _MAX_VISIBILITY)
    root = element("QueueMessagesList")
    try:
        root.extend(map(_to_xml, faulty.receive(source, count, timedelta(seconds=seconds))))
    except queue.QueueNotFound:
        raise AzureError("QueueNotFound") from None
    return answer(200, root)


def _to_xml(message: queue.QueuedMessage) -> etree._Element:
    return element(
        "QueueMessage",
        MessageId=message.lease.message_id,
        InsertionTime=http_date(message.inserted),
        ExpirationTime=http_date(message.expires),
        PopReceipt=message.lease.receipt,
        TimeNextVisible=http_date(message.next_visible or message.inserted),
        DequeueCount=str(message.dequeue_count),
        MessageText=message.text,
    )


def _delete(
    source: queue.Queue, message_id: str, parameters: Mapping[str, str], faulty: FaultyMessages
) -> Response:
    faulty.delete(message_id)
    check_timeout(parameters)
    receipt = parameters.get("popreceipt", "")
    if not receipt:
        raise AzureError("InvalidQueryParameterValue", "expected a pop receipt", parameter="popreceipt")
    if bytes_of_base64(receipt) is None:
        raise AzureError("InvalidQueryParameterValue", "Invalid pop receipt format", parameter="popreceipt")
    try:
        source.delete(MessageLease(message_id, receipt))
    except queue.QueueNotFound:
        raise AzureError("QueueNotFound") from None
    except queue.LeaseLost:  # it was deleted or received again, or the receipt belongs to another message
        raise AzureError("MessageNotFound") from None
    return answer(204)


def _whole_number(parameters: Mapping[str, str], name: str, default: int, maximum: int) -> int:
    text = parameters.get(name, str(default))
    if not re.fullmatch("-?[0-9]{1,9}", text):
        raise AzureError("InvalidQueryParameterValue", "expected a whole number", parameter=name)
    if not 1 <= int(text) <= maximum:
        bounds = {"MinimumAllowed": "1", "MaximumAllowed": str(maximum)}
        raise AzureError("OutOfRangeQueryParameterValue", parameter=name, elements=bounds)
    return int(text)
