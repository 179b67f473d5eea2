"""What the queue service is asked: each operation in its usual forms, and what is wrong with one."""

from tests.adapters.azurite_patches.wire import Answer, Wire, quoted


def message(text: str) -> str:
    declaration = "<?xml version='1.0' encoding='utf-8'?>"
    return f"{declaration}\n<QueueMessage><MessageText>{text}</MessageText></QueueMessage>"


def put(az: Wire, queue: str, text: str = "text", query: str = "") -> Answer:
    az.tick()
    return az.queue("POST", f"/{queue}/messages", query, message(text))


def receive(az: Wire, queue: str, query: str = "visibilitytimeout=3000") -> Answer:
    return az.queue("GET", f"/{queue}/messages", query)


def _path(queue: str, answer: Answer) -> str:
    return f"/{queue}/messages/{answer.element('MessageId')}"


def _receipt(answer: Answer) -> str:
    return f"popreceipt={quoted(answer.element('PopReceipt'))}"


def queues(az: Wire) -> None:
    az.queue("GET", "/not-there", "comp=metadata")
    az.queue("DELETE", "/not-there")
    for metadata in ({}, {}, {"x-ms-meta-a": "1"}, {"x-ms-meta-a": "1"}):
        az.queue("PUT", "/with-metadata", headers=metadata)
    az.queue("PUT", "/with-metadata", "comp=metadata", headers={"x-ms-meta-b": "2", "x-ms-meta-C": "3"})
    az.queue("GET", "/with-metadata", "comp=metadata")
    az.queue("HEAD", "/with-metadata", "comp=metadata")
    for name in ("ab", "a" * 64, "Upper", "two--dashes", "-dash", "a_b", "a|b", "%e4", ""):
        az.queue("PUT", f"/{name}")
        az.queue("POST", f"/{name}/messages", "", message("text"))
        az.queue("GET", f"/{name}/messages")
    az.queue("GET", "/with-metadata", "comp=acl")
    az.queue("GET", "/", "comp=list&prefix=with&include=metadata")
    az.queue("GET", "/", "comp=list&maxresults=1")
    az.queue("GET", "/", "restype=service&comp=properties")
    az.queue("DELETE", "/with-metadata")
    az.queue("GET", "/with-metadata", "comp=metadata")


def texts_of_messages(az: Wire) -> None:
    az.queue("PUT", "/texts")
    plain = [
        "a",
        " spaces  around ",
        "two\nlines",
        "cr\r\nlf",
        "tab\there",
        "ü€ß 中",
        "😀",
        "]]>",
        "a]]&gt;b",
    ]
    entities = [
        "&lt;b&gt; &amp;amp; &quot;q&quot; &apos;",
        "&#65;&#x42;",
        "&nbsp;",
        "&lt",
        "& a",
        "&",
        ";&amp;;",
    ]
    nothing = ["", " ", "\n", "\u00a0", "&#32;", "<!-- c -->", "a<!-- c -->b", "<![CDATA[<x>]]>", "<b>x</b>"]
    entities += [";&amp;;", "&&amp;", "a]]&gt;b"]
    illegal = ["\x85 c1 \x9f", "\x00", "\x01", "a\x0bb", "\ufffe", "\uffff", "\ufeff", "x\ufeff", "\u2028"]
    for text in plain + entities + nothing + illegal:
        put(az, "texts", text)
        receive(az, "texts")
    az.queue("GET", "/texts/messages", "peekonly=true&numofmessages=32")


def bodies_of_messages(az: Wire) -> None:
    az.queue("PUT", "/bodies")
    inner = "<MessageText>x</MessageText>"
    for body in (
        f"<QueueMessage>{inner}</QueueMessage>",
        f"\ufeff<QueueMessage>{inner}</QueueMessage>",
        f" \r\n\t<?xml version='1.0'?><QueueMessage>{inner}</QueueMessage>\n",
        f"\n<QueueMessage>\n {inner}\n</QueueMessage>\n",
        f"\u00a0<QueueMessage>{inner}</QueueMessage>",
        f"<?xml version='1.0'?><?xml version='1.0'?><QueueMessage>{inner}</QueueMessage>",
        f"<?xml ?><QueueMessage>{inner}</QueueMessage>",
        f"<?xmlversion?><QueueMessage>{inner}</QueueMessage>",
        f"<?xml-stylesheet a='?'?><QueueMessage>{inner}</QueueMessage>",
        f"<Other>{inner}</Other>",
        f"<QueueMessage>{inner}{inner}</QueueMessage>",
        f"<QueueMessage>text{inner}</QueueMessage>",
        f"<QueueMessage a='b'>{inner}</QueueMessage>",
        f"<QueueMessage>{inner}</QueueMessage>trailing",
        f"<QueueMessage>{inner}",
        "<QueueMessage><messagetext>lower</messagetext></QueueMessage>",
        "<QueueMessage><MessageText/></QueueMessage>",
        "<QueueMessage/>",
        "{}",
        "text",
        b"\xff\xfe<QueueMessage>",
        b"<QueueMessage><MessageText>\xff\xc3</MessageText></QueueMessage>",
        b"",
    ):
        az.tick()
        az.queue("POST", "/bodies/messages", "", body)
        receive(az, "bodies")
    for size in (65535, 65536, 65537, 49152, 200_000):
        put(az, "bodies", "x" * size)
    az.queue("GET", "/bodies/messages", "numofmessages=32&visibilitytimeout=3000")


def parameters_of_put(az: Wire) -> None:
    az.queue("PUT", "/put-parameters")
    values = [
        "0",
        "-1",
        "-2",
        "6000",
        "06000",
        "+6000",
        "6000s",
        "6e3",
        "abc",
        "%20",
        "604800",
        "604801",
        "NaN",
        "999999999",
        "99999999999",
        "-0",
        "0x10",
    ]
    values += ["", "9999999999999999", "6%30%30%30"]
    for value in values:
        put(az, "put-parameters", "v", f"visibilitytimeout={value}")
        put(az, "put-parameters", "t", f"messagettl={value}")
    both = ((0, 1000), (1000, 1000), (999, 1000), (5000, -1), (604800, -1), (604800, 604801))
    for visibility, life in both:
        put(az, "put-parameters", "both", f"visibilitytimeout={visibility}&messagettl={life}")
    more = "numofmessages=1 popreceipt=x timeout=5 timeout=-1 timeout=x unknown=1 comp=metadata"
    for query in more.split():
        put(az, "put-parameters", "extra", query)
    put(az, "not-there")
    az.queue("GET", "/put-parameters/messages", "peekonly=true&numofmessages=32")
    az.queue("GET", "/put-parameters", "comp=metadata")


def parameters_of_receive(az: Wire) -> None:
    az.queue("PUT", "/receive-parameters")
    for number in range(40):
        put(az, "receive-parameters", str(number))
    for value in (
        "",
        *["0", "33", "-1", "abc", "1.5", "1.4", "2x", "02", "32000", "1", "2", "%20", "NaN", "1e1"],
    ):
        receive(az, "receive-parameters", f"numofmessages={value}&visibilitytimeout=3000")
        az.queue("GET", "/receive-parameters/messages", f"peekonly=true&numofmessages={value}")
    for value in ("", "0", "-1", "abc", "0.5", "604800", "604801", "0300", "99999999999"):
        receive(az, "receive-parameters", f"visibilitytimeout={value}")
    more = "peekonly=false peekonly=x peekonly=true messagettl=1 timeout=5 timeout=-1 x=1 comp=acl"
    for query in more.split():
        receive(az, "receive-parameters", f"visibilitytimeout=3000&{query}")
    receive(az, "receive-parameters", "numofmessages=32")
    receive(az, "receive-parameters", "numofmessages=32")
    receive(az, "not-there")
    az.queue("GET", "/not-there/messages", "peekonly=true")


def life_of_a_message(az: Wire) -> None:
    az.queue("PUT", "/life")
    first, second = put(az, "life", "first"), put(az, "life", "second")
    az.queue("GET", "/life/messages", "peekonly=true&numofmessages=2")
    received = receive(az, "life")
    for stale in (first, second):
        az.queue("DELETE", _path("life", received), _receipt(stale))
        az.queue("PUT", _path("life", received), f"{_receipt(stale)}&visibilitytimeout=0")
    updated = az.queue(
        "PUT", _path("life", received), f"{_receipt(received)}&visibilitytimeout=3000", message("changed")
    )
    az.queue("PUT", _path("life", received), f"{_receipt(received)}&visibilitytimeout=0")
    az.tick()
    newest = quoted(updated.header("x-ms-popreceipt"))
    az.queue("PUT", _path("life", received), f"popreceipt={newest}&visibilitytimeout=0")
    for _ in range(2):
        received = receive(az, "life")
        az.queue("DELETE", _path("life", received), _receipt(received))
        az.queue("DELETE", _path("life", received), _receipt(received))
    receive(az, "life")
    at_once = put(az, "life", "deleted by the receipt of put")
    az.queue("DELETE", _path("life", at_once), _receipt(at_once))
    az.queue("GET", "/life", "comp=metadata")


def updates(az: Wire) -> None:
    az.queue("PUT", "/updates")
    put(az, "updates")
    received = receive(az, "updates")
    path, receipt = _path("updates", received), received.element("PopReceipt")
    for value in ("", "-1", "604801", "abc", "NaN"):
        az.queue("PUT", path, f"popreceipt={receipt}&visibilitytimeout={value}", message("x"))
    for query in (
        "",
        "visibilitytimeout=0",
        "popreceipt=",
        f"popreceipt={receipt}",
        "popreceipt=x&visibilitytimeout=1",
    ):
        az.queue("PUT", path, query, message("x"))
        az.queue("DELETE", path, query)
    bodies = [
        message("x" * 65537),
        message(""),
        message("new &amp; old"),
        "",
        " ",
        "{}",
        "<QueueMessage/>",
        message("\x01"),
    ]
    for body in bodies:
        az.queue("PUT", path, f"popreceipt={quoted(receipt)}&visibilitytimeout=3000", body)
        last = az.last
        receipt = last.header("x-ms-popreceipt") if last.status == 204 else receipt
    az.queue("PUT", path, f"popreceipt={quoted(receipt)}&visibilitytimeout=0", message("the end"))
    receive(az, "updates")
    az.queue("PUT", "/not-there/messages/x", "popreceipt=x&visibilitytimeout=1")
    az.queue("PUT", "/updates/messages/x", "popreceipt=x&visibilitytimeout=1")
    az.queue("DELETE", "/not-there/messages/x", "popreceipt=x")
    az.queue("DELETE", "/updates/messages/x", "popreceipt=x")
    for odd in (
        "/updates/messages/",
        "/updates/messages/x/y",
        "/updates/other/x",
        "/updates/messages%2Fx",
        "/updates/messages/%zz",
    ):
        for method in ("PUT", "DELETE", "GET", "POST", "HEAD", "PATCH"):
            az.queue(method, odd, "popreceipt=x&visibilitytimeout=1")


def order_of_messages(az: Wire) -> None:
    az.queue("PUT", "/order")
    az.queue("PUT", "/order-2")
    for number in range(6):
        put(az, "order", f"message {number}", f"visibilitytimeout={300 if number == 2 else 0}")
        put(az, "order-2", f"other {number}")
    received = [receive(az, "order") for _ in range(3)]
    for one in (received[2], received[0]):
        az.tick()
        az.queue("PUT", _path("order", one), f"{_receipt(one)}&visibilitytimeout=0")
    receive(az, "order", "numofmessages=32&visibilitytimeout=3000")
    az.queue("DELETE", "/order-2/messages")
    receive(az, "order-2")
    put(az, "order-2", "after the clear")
    az.queue("DELETE", "/order-2")
    receive(az, "order-2")
    az.queue("PUT", "/order-2")
    receive(az, "order-2")
    put(az, "order-2", "after the queue was made again")
    receive(az, "order-2")


def times_to_live(az: Wire) -> None:
    az.queue("PUT", "/expiring")
    put(az, "expiring", "long")
    put(az, "expiring", "for ever", "messagettl=-1")
    put(az, "expiring", "short", "messagettl=1")
    hidden = put(az, "expiring", "hidden", "messagettl=2&visibilitytimeout=1")
    az.queue("GET", "/expiring", "comp=metadata")
    az.until(
        lambda: (
            b"short" not in az.unrecorded("GET", "/expiring/messages", "peekonly=true&numofmessages=32").body
        )
    )
    az.until(lambda: b">2<" in count(az, "expiring"))
    az.queue("DELETE", _path("expiring", hidden), _receipt(hidden))
    az.queue("GET", "/expiring/messages", "numofmessages=32&visibilitytimeout=3000")


def count(az: Wire, queue: str) -> bytes:
    """How many messages there are after the expired ones were cleared, as ``>2<``."""
    az.unrecorded("GET", f"/{queue}/messages", "peekonly=true")
    listed = az.unrecorded("GET", f"/{queue}", "comp=metadata")
    return f">{listed.header('x-ms-approximate-messages-count')}<".encode()
