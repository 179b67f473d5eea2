"""Messages are read as a parser of XML reads them."""

from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from legacy_queue.adapters.azure.azure_queue import message_fields, received_messages
from legacy_queue.adapters.azure.http_response import Response
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
    return Response(200, {}, body.encode() if isinstance(body, str) else body, True)


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


messages = st.lists(
    st.dictionaries(
        st.sampled_from(["MessageId", "PopReceipt", "MessageText", "DequeueCount"]),
        st.text(
            st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff")
        ),
        max_size=4,
    ),
    max_size=4,
)


@given(messages, st.sampled_from(["", "\n  "]), st.booleans())
def test_messages_are_read_as_by_an_xml_parser(
    sent: list[dict[str, str]], space: str, is_numeric: bool
) -> None:
    entities = {"'": "&apos;", '"': "&quot;", **({"é": "&#233;", "=": "&#x3D;"} if is_numeric else {})}

    def element(name: str, text: str) -> str:
        return f"{space}<{name}>{escape(text, entities)}</{name}>" if text else f"{space}<{name} />"

    response = listed(
        *(
            f"{space}<QueueMessage>{''.join(element(*one) for one in fields.items())}{space}</QueueMessage>"
            for fields in sent
        )
    )
    parsed: Any = etree.fromstring(response.body).iter("QueueMessage")
    theirs = [{field.tag: field.text or "" for field in message} for message in parsed]
    assert message_fields(response) == theirs == sent


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "<html></html>",
        "<QueueMessagesList>",
        f"<QueueMessagesList>{MESSAGE}",
        f"<QueueMessagesList>{MESSAGE}</QueueMessagesList>more",
        f"<QueueMessagesList>{MESSAGE[:-1]}</QueueMessagesList>",
        "<QueueMessagesList><QueueMessage></QueueMessagesList>",
        "<QueueMessagesList><QueueMessage><MessageId>a</QueueMessage></QueueMessagesList>",
        "<QueueMessagesList><QueueMessage><MessageId>a</PopReceipt></QueueMessage></QueueMessagesList>",
        "<QueueMessagesList><QueueMessage>text</QueueMessage></QueueMessagesList>",
        "<QueueMessagesList><QueueMessage/></QueueMessagesList>",
        "<QueueMessagesList><QueueMessage></QueueMessage></QueueMessagesList>",
        f"<QueueMessagesList>{MESSAGE.replace('2009', '200')}</QueueMessagesList>",
        f"<QueueMessagesList>{MESSAGE.replace('Oct', 'Okt')}</QueueMessagesList>",
        f"<QueueMessagesList>{MESSAGE.replace('09', '32')}</QueueMessagesList>",
        f"<QueueMessagesList>{MESSAGE.replace('>2<', '>two<')}</QueueMessagesList>",
        b"<QueueMessagesList><QueueMessage><MessageId>\xff</MessageId></QueueMessage></QueueMessagesList>",
    ],
)
def test_an_invalid_list_of_messages_is_refused(body: str | bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        received_messages(answered(body))
