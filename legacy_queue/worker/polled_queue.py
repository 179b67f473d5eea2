"""The Azure queues as a worker sees them: two signed URLs for each, and messages in XML.

Never puts a signed URL or a receipt into an error or a repr: both are secrets.
"""

import base64
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from lxml import etree

from legacy_queue.worker.http_client import Http, Unavailable


@dataclass(frozen=True)
class PolledMessage:
    """A ``<QueueMessage>``; ``text`` is still base64."""

    message_id: str
    pop_receipt: str = field(repr=False)
    text: str = field(repr=False)

    def work(self) -> dict[str, Any] | None:
        """The JSON of MessageText: taskId, runId and signature. None if it names no task."""
        try:
            work: dict[str, Any] = json.loads(base64.b64decode(self.text, validate=True))
            is_run = re.fullmatch("[A-Za-z0-9_-]{22}", work["taskId"]) and type(work["runId"]) is int
            return work if is_run else None
        except (KeyError, TypeError, ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class PolledQueue:
    """A queue of pollTaskUrls' answer."""

    signed_poll_url: str = field(repr=False)
    signed_delete_url: str = field(repr=False)

    def poll(self, http: Http) -> PolledMessage | None:
        """Receive a message, which is hidden from other workers from now on; None if there is none.

        Raises Unavailable if the next poll may succeed, Refused if only new URLs can help.
        """
        answer = http.send("poll", f"{self.signed_poll_url}&numofmessages=1", "GET")
        messages = parse_messages(answer.content)
        return messages[0] if messages else None

    def delete(self, http: Http, message: PolledMessage) -> None:
        """Delete the message from its queue; raises Unavailable and Refused."""
        http.send("delete", delete_url(self.signed_delete_url, message), "DELETE")


def delete_url(template: str, message: PolledMessage) -> str:
    """The URL that deletes the message; ``template`` is a signedDeleteUrl.

    Both ids are URI-encoded: a receipt may hold ``+``, which Azure would read as a space.
    """
    url = template.replace("{{messageId}}", quote(message.message_id, safe=""))
    return url.replace("{{popReceipt}}", quote(message.pop_receipt, safe=""))


def parse_messages(xml: bytes) -> list[PolledMessage]:
    """The messages of a ``<QueueMessagesList>``, with or without a byte order mark.

    Reads no entity, file or URL that the XML declares. Raises Unavailable for anything else.
    """
    names = ("MessageId", "PopReceipt", "MessageText")
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True)
    try:
        root = etree.fromstring(xml, parser)
        found = root.findall("QueueMessage")
        messages: list[list[Any]] = [[element.findtext(name) for name in names] for element in found]
        if root.tag != "QueueMessagesList" or any(None in texts for texts in messages):
            raise ValueError
        return [PolledMessage(*texts) for texts in messages]
    except (etree.XMLSyntaxError, ValueError):
        raise Unavailable("poll: the answer is not a whole QueueMessagesList") from None
