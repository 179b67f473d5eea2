"""The Azure queues as a worker sees them: two signed URLs for each, and messages in XML.

A signed URL and a receipt are secrets: neither is ever part of an error or of a repr.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from urllib.parse import quote

import requests
from lxml import etree

from legacy_queue.worker.http import Http, Unavailable

_TASK_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class PollRefused(Exception):
    """A 4xx to a poll: the signed URLs are of no use any more, new ones may be."""


class DeleteFailed(Exception):
    """The message is still in its queue."""


class MessageUnreadable(Exception):
    """The message names no task, so nobody can ever claim by it."""


@dataclass(frozen=True)
class Work:
    """What a message says: the run that may be claimed, and the queue's signature over it."""

    task_id: str
    run_id: int
    signature: str | None = field(repr=False)


@dataclass(frozen=True)
class Message:
    """One ``<QueueMessage>``; ``text`` is still base64."""

    message_id: str
    pop_receipt: str = field(repr=False)
    dequeue_count: int
    text: str = field(repr=False)

    def work(self) -> Work:
        """MessageText, base64 decoded and JSON parsed; raises MessageUnreadable."""
        try:
            content = json.loads(base64.b64decode(self.text, validate=True))
        except (binascii.Error, ValueError, RecursionError):
            raise MessageUnreadable("MessageText is not base64 of JSON") from None
        match content:
            case {"taskId": str(task_id), "runId": int(run_id)} if _TASK_ID.fullmatch(task_id):
                pass
            case _:
                raise MessageUnreadable("MessageText is not an object with a taskId and a runId")
        if isinstance(run_id, bool) or run_id < 0:
            raise MessageUnreadable("the runId in MessageText is not a number from 0")
        signature = content.get("signature")
        return Work(task_id, run_id, signature if isinstance(signature, str) else None)


@dataclass(frozen=True)
class AzureQueue:
    """One of the queues that pollTaskUrls names."""

    signed_poll_url: str = field(repr=False)
    signed_delete_url: str = field(repr=False)

    def poll(self, http: Http, number: int) -> list[Message]:
        """Up to ``number`` (1 to 32) messages, hidden from others from now on; none is no error.

        Raises Unavailable when the next poll may succeed, PollRefused when only new URLs can help.
        """
        answer = http.send("GET", f"{self.signed_poll_url}&numofmessages={number}", retries=0)
        if answer.status_code != 200:
            raise PollRefused(f"Azure answered {_azure_error(answer)} to a poll")
        return parse_messages(answer.content)

    def delete(self, http: Http, message: Message) -> None:
        """Take the message out of its queue; raises DeleteFailed.

        Both ids are URI-encoded: a receipt may hold ``+``, which Azure would read as a space.
        """
        url = self.signed_delete_url.replace("{{messageId}}", quote(message.message_id, safe=""))
        url = url.replace("{{popReceipt}}", quote(message.pop_receipt, safe=""))
        try:
            answer = http.send("DELETE", url)
        except Unavailable as failure:
            raise DeleteFailed(str(failure)) from None
        if answer.status_code != 204:
            raise DeleteFailed(f"Azure answered {_azure_error(answer)} to a delete")


def parse_messages(xml: bytes) -> list[Message]:
    """The messages of a ``<QueueMessagesList>``, with or without a byte order mark.

    Raises Unavailable for anything else, and for a document type: Azure sends none, and what it
    declares (entities, files, URLs) is never read.
    """
    root = _parse(xml)
    if root is None or root.tag != "QueueMessagesList":
        raise Unavailable("a poll was answered with something else than a QueueMessagesList")
    try:
        return [_message(element) for element in root.findall("QueueMessage")]
    except ValueError:
        raise Unavailable("a poll was answered with a QueueMessage that lacks something") from None


def _message(element: etree._Element) -> Message:
    message_id, pop_receipt = element.findtext("MessageId"), element.findtext("PopReceipt")
    if not message_id or not pop_receipt:
        raise ValueError
    return Message(
        message_id=message_id,
        pop_receipt=pop_receipt,
        dequeue_count=int(element.findtext("DequeueCount") or ""),
        text=element.findtext("MessageText") or "",
    )


def _parse(xml: bytes) -> etree._Element | None:
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(xml, parser)
    except etree.XMLSyntaxError:
        return None
    return None if root.getroottree().docinfo.internalDTD is not None else root


def _azure_error(answer: requests.Response) -> str:
    """``403 AuthenticationFailed``: the status, and the code from Azure's error XML where there is one."""
    root = _parse(answer.content)
    code = (root.findtext("Code") if root is not None else None) or ""
    return f"{answer.status_code} {code[:64]}".strip()
