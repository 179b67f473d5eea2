"""Lists of messages as Azure answers them."""

from datetime import UTC, datetime

import pytest

from legacy_queue.adapters.azure.azure_queue import received_messages
from legacy_queue.adapters.azure.connection import Response
from legacy_queue.domain.messages import MessageLease
from legacy_queue.ports.queue import QueuedMessage

# Source: Azure's "Get Messages"
MESSAGE = (
    "<QueueMessage><MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId>"
    "<InsertionTime>Fri, 09 Oct 2009 21:04:30 GMT</InsertionTime>"
    "<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>YzQ4Yzg1MDIt+/==</PopReceipt>"
    "<TimeNextVisible>Fri, 09 Oct 2009 23:29:20 GMT</TimeNextVisible><DequeueCount>2</DequeueCount>"
    "<MessageText>PHRlc3Q&#43;</MessageText></QueueMessage>"
)


def answered(body: str | bytes) -> Response:
    return Response(200, {}, body.encode() if isinstance(body, str) else body)


def listed(*messages: str, before: str = "<?xml version='1.0' encoding='utf-8'?>") -> Response:
    return answered(f"{before}<QueueMessagesList>{''.join(messages)}</QueueMessagesList>")


def test_a_message_is_read() -> None:
    expected = QueuedMessage(
        MessageLease("5974b586-0df3-4e2d-ad0c-18e3892bfca2", "YzQ4Yzg1MDIt+/=="),
        "PHRlc3Q+",
        datetime(2009, 10, 9, 21, 4, 30, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2009, 10, 9, 23, 29, 20, tzinfo=UTC),
        2,
    )
    assert received_messages(listed(MESSAGE, MESSAGE)) == [expected, expected]


@pytest.mark.parametrize(
    "body",
    [
        "<QueueMessagesList/>",
        "<QueueMessagesList />",
        "<QueueMessagesList></QueueMessagesList>",
        "\ufeff<?xml version='1.0'?>\r\n<QueueMessagesList>\n</QueueMessagesList>\n",
    ],
)
def test_an_empty_list_of_messages_is_read(body: str) -> None:
    assert received_messages(answered(body)) == []


@pytest.mark.parametrize(
    "body",
    [
        "",
        f"<QueueMessagesList>{MESSAGE}",
        f"<QueueMessagesList>{MESSAGE[:-1]}</QueueMessagesList>",
        "<QueueMessagesList><QueueMessage><MessageId>a</PopReceipt></QueueMessage></QueueMessagesList>",
        "<QueueMessagesList><QueueMessage>text</QueueMessage></QueueMessagesList>",
        "<QueueMessagesList><QueueMessage/></QueueMessagesList>",
        f"<QueueMessagesList>{MESSAGE.replace('Oct', 'Okt')}</QueueMessagesList>",
        f"<QueueMessagesList>{MESSAGE.replace('>2<', '>two<')}</QueueMessagesList>",
        b"<QueueMessagesList><QueueMessage><MessageId>\xff</MessageId></QueueMessage></QueueMessagesList>",
    ],
)
def test_an_invalid_list_of_messages_is_refused(body: str | bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        received_messages(answered(body))
