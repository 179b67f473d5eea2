"""The Azure queues as a worker sees them: two signed URLs for each, and messages in XML.

Never puts a signed URL or a receipt into an error or a repr: both are secrets.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from urllib.parse import quote

import requests
from lxml import etree

from legacy_queue.worker.http_client import Http, Unavailable


class AzureRefused(Exception):
    """Azure answered a poll with a 4xx (only new signed URLs may help), or a delete."""

    def __init__(self, operation: str, answer: requests.Response) -> None:
        try:
            code = (_parse(answer.content).findtext("Code") or "")[:64]
        except ValueError:
            code = ""
        super().__init__(f"Azure answered {answer.status_code} {code}".rstrip() + f" to a {operation}")


class MessageUnreadable(Exception):
    """The message names no task: no claim can ever be made with it."""


@dataclass(frozen=True)
class Work:
    """The content of a message: a run to claim, and the queue's signature over it."""

    task_id: str
    run_id: int
    signature: str | None = field(repr=False)


@dataclass(frozen=True)
class PolledMessage:
    """A ``<QueueMessage>``; ``text`` is still base64."""

    message_id: str
    pop_receipt: str = field(repr=False)
    dequeue_count: int
    text: str = field(repr=False)

    def work(self) -> Work:
        """The content of MessageText, which is JSON in base64; raises MessageUnreadable."""
        try:
            content = json.loads(base64.b64decode(self.text, validate=True))
            task_id, run_id, signature = content["taskId"], content["runId"], content.get("signature")
            if not re.fullmatch("[A-Za-z0-9_-]{22}", task_id) or type(run_id) is not int or run_id < 0:
                raise ValueError
        except (KeyError, TypeError, ValueError, RecursionError):
            raise MessageUnreadable(
                "MessageText is not base64 of a JSON object with a taskId and a runId from 0"
            ) from None
        return Work(task_id, run_id, signature if isinstance(signature, str) else None)


@dataclass(frozen=True)
class PolledQueue:
    """A queue of pollTaskUrls' answer."""

    signed_poll_url: str = field(repr=False)
    signed_delete_url: str = field(repr=False)

    def poll(self, http: Http, number: int) -> list[PolledMessage]:
        """Receive up to ``number`` (1 to 32) messages, which are hidden from other workers from now on.

        Raises Unavailable if the next poll may succeed, AzureRefused if only new URLs can help.
        """
        answer = http.send("GET", f"{self.signed_poll_url}&numofmessages={number}", retries=0)
        if answer.status_code != 200:
            raise AzureRefused("poll", answer)
        return parse_messages(answer.content)

    def delete(self, http: Http, message: PolledMessage) -> None:
        """Delete the message from its queue; raises Unavailable and AzureRefused."""
        answer = http.send("DELETE", delete_url(self.signed_delete_url, message))
        if answer.status_code != 204:
            raise AzureRefused("delete", answer)


def delete_url(template: str, message: PolledMessage) -> str:
    """The URL that deletes the message; ``template`` is a signedDeleteUrl.

    Both ids are URI-encoded: a receipt may hold ``+``, which Azure would read as a space.
    """
    url = template.replace("{{messageId}}", quote(message.message_id, safe=""))
    return url.replace("{{popReceipt}}", quote(message.pop_receipt, safe=""))


def parse_messages(xml: bytes) -> list[PolledMessage]:
    """The messages of a ``<QueueMessagesList>``, with or without a byte order mark.

    Raises Unavailable for anything else, and for a document type: Azure sends none, and the entities, files
    and URLs that it declares are never read.
    """
    names, messages = ("MessageId", "PopReceipt", "DequeueCount", "MessageText"), []
    try:
        root = _parse(xml)
        if root.tag != "QueueMessagesList":
            raise ValueError
        for element in root.findall("QueueMessage"):
            message_id, pop_receipt, count, text = (element.findtext(name) or "" for name in names)
            if not message_id or not pop_receipt:
                raise ValueError
            messages.append(PolledMessage(message_id, pop_receipt, int(count), text))
    except ValueError:
        raise Unavailable("the answer to a poll is not a whole QueueMessagesList") from None
    return messages


def _parse(xml: bytes) -> etree._Element:
    """Raises ValueError."""
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(xml, parser)
    except etree.XMLSyntaxError:
        raise ValueError from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise ValueError
    return root
