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

from legacy_queue.worker.http_client import Unavailable


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

    def claim_proof(self) -> dict[str, str]:
        """The parameters of a draft worker's claimTask, which show that it holds the message."""
        work = self.work() or {}
        signature = {"signature": work["signature"]} if "signature" in work else {}
        return {"messageId": self.message_id, "receipt": self.pop_receipt, **signature}


@dataclass(frozen=True)
class PolledQueue:
    """A queue of pollTaskUrls' answer."""

    signed_poll_url: str = field(repr=False)
    signed_delete_url: str = field(repr=False)

    @classmethod
    def from_wire(cls, urls: Any) -> "PolledQueue":
        return cls(str(urls["signedPollUrl"]), str(urls["signedDeleteUrl"]))

    @property
    def poll_url(self) -> str:
        """The URL that receives one message, which is hidden from other workers from then on."""
        return f"{self.signed_poll_url}&numofmessages=1"

    def delete_url(self, message: PolledMessage) -> str:
        """The URL that deletes the message.

        Both ids are URI-encoded: a receipt may hold ``+``, which Azure would read as a space.
        """
        url = self.signed_delete_url.replace("{{messageId}}", quote(message.message_id, safe=""))
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
