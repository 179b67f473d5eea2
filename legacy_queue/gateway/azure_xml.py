"""The XML that Azure Queue Storage answers with, to the byte.

A byte order mark, a declaration in double quotes, no line breaks, no namespace, no attributes. Source:
design/clients.md 16, and recorded answers of Azure.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime

from lxml import etree

from legacy_queue.ports.queue import QueuedMessage

_PROLOGUE = b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>'
_NO_MESSAGES = b"<QueueMessagesList />"  # Azure's space, which lxml would not write


def messages_xml(messages: Iterable[QueuedMessage]) -> bytes:
    """The answer to Get Messages, which were received."""
    messages_list = etree.Element("QueueMessagesList")
    for message in messages:
        _append(
            etree.SubElement(messages_list, "QueueMessage"),
            MessageId=message.lease.message_id,
            InsertionTime=_rfc1123(message.inserted),
            ExpirationTime=_rfc1123(message.expires),
            PopReceipt=message.lease.receipt,
            TimeNextVisible=_rfc1123(message.next_visible or message.inserted),
            DequeueCount=str(message.dequeue_count),
            MessageText=message.text,
        )
    return _document(messages_list) if len(messages_list) else _PROLOGUE + _NO_MESSAGES


def error_xml(code: str, message: str) -> bytes:
    """The body of every refusal."""
    return _document(_append(etree.Element("Error"), Code=code, Message=message))


def _append(parent: etree._Element, **texts: str) -> etree._Element:
    for name, text in texts.items():
        etree.SubElement(parent, name).text = text
    return parent


def _document(root: etree._Element) -> bytes:
    return _PROLOGUE + etree.tostring(root, encoding="utf-8", xml_declaration=False)


def _rfc1123(time: datetime) -> str:
    return format_datetime(time.astimezone(UTC), usegmt=True)
