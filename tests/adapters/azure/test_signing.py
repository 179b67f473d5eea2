"""Requests are signed as the SDK's own policies sign them."""

import base64
import re
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest
from azure.data.tables._authentication import SharedKeyCredentialPolicy as TablePolicy
from azure.storage.queue import QueueClient
from azure.storage.queue._shared.authentication import SharedKeyCredentialPolicy as QueuePolicy
from hypothesis import given, settings
from hypothesis import strategies as st

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.connection import Connections
from legacy_queue.adapters.azure.rest import (
    BLOB,
    QUEUE,
    TABLE,
    Request,
    RestClient,
    Service,
    SharedKey,
    http_date,
)
from legacy_queue.local_processes.azurite import ACCOUNT, DEFAULT_KEY

from .stub import NO_CONTENT, Stub
from .test_rest import ACTS, RECEIVE, Client

URLS = {
    "Azurite": f"http://127.0.0.1:10001/{ACCOUNT}",
    "Azure": f"https://{ACCOUNT}.queue.core.windows.net",
    "a path": "http://gateway/storage/account",
    "IPv6": "http://[::1]:10001/devstoreaccount1",
}
NOW = 1_800_000_000.5


class Sent:
    """A request as it was sent: read again from its bytes."""

    def __init__(self, origin: str, sent: bytes) -> None:
        head, _, self.body = sent.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        self.method, target, _ = line.split(" ")
        self.url = origin + target
        self.headers = dict(one.split(": ", 1) for one in lines)

    def signed_by(self, policy: Any) -> str:
        """The Authorization that the SDK's policy would have given to it."""
        headers = {name: value for name, value in self.headers.items() if name != "authorization"}
        request = PipelineRequest(HttpRequest(self.method, self.url, headers), PipelineContext(None))
        policy.on_request(request)
        return str(request.http_request.headers["Authorization"])


def policy(service: Service, key: str = DEFAULT_KEY) -> Any:
    untyped: Any = TablePolicy if service is TABLE else QueuePolicy
    return untyped(AzureNamedKeyCredential(ACCOUNT, key)) if service is TABLE else untyped(ACCOUNT, key)


def sent(service: Service, url: str, request: Request) -> Sent:
    client = RestClient(
        service, Connections(url), SharedKey(ACCOUNT, DEFAULT_KEY), Counter(), now=lambda: NOW
    )
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    return Sent(origin, client.signed(request))


text = st.text(st.characters(codec="utf-8"), max_size=20)
requests = st.builds(
    Request,
    st.sampled_from(["GET", "PUT", "POST", "PATCH", "DELETE"]),
    st.sampled_from(["/q/messages", "/t(PartitionKey='a%27%27b',RowKey='%C3%A4')", "/$batch"]),
    st.dictionaries(
        st.sampled_from(["popreceipt", "visibilitytimeout", "numofmessages", "$filter"]), text
    ).map(lambda params: sorted(params.items())),
    st.fixed_dictionaries(
        {"accept": st.just("application/xml")},
        optional={
            "content-type": st.sampled_from(["application/xml", "multipart/mixed; boundary=x"]),
            "if-match": st.just("W/\"datetime'2026'\""),
            "if-none-match": st.just("*"),
            "x-ms-blob-content-type": st.just("text/plain"),
            "x-ms-blob-content-encoding": st.just("gzip"),
        },
    ),
    st.none() | st.binary(max_size=20),
)


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
@pytest.mark.parametrize("service", [TABLE, QUEUE, BLOB], ids=lambda service: service.name)
@settings(max_examples=25)  # of each service at each URL: 300
@given(request=requests)
def test_requests_are_signed_as_by_the_sdk(service: Service, url: str, request: Request) -> None:
    if service is TABLE and "$filter" not in dict(request.params):
        request = request._replace(params=())
    signed = sent(service, url, request)
    assert signed.headers["authorization"] == signed.signed_by(policy(service))
    assert signed.headers["host"] == urlsplit(url).netloc
    assert signed.body == (request.body or b"")


@pytest.mark.parametrize("size", [1, 32, 63, 64, 65, 200])
def test_a_key_of_any_length_signs_as_in_the_sdk(size: int) -> None:
    key = base64.b64encode(bytes(range(size))).decode()
    request = Request("GET", "/q/messages")
    client = RestClient(QUEUE, Connections(URLS["Azurite"]), SharedKey(ACCOUNT, key), Counter())
    signed = Sent("http://127.0.0.1:10001", client.signed(request))
    assert signed.headers["authorization"] == signed.signed_by(policy(QUEUE, key))


@pytest.mark.parametrize("name", ACTS | RECEIVE)
def test_each_operation_is_signed_as_by_the_sdk(name: str) -> None:
    act, _, good = (ACTS | RECEIVE)[name]
    with Stub(good) as stub:
        act(Client(stub.url))
    (heard,) = stub.heard
    request = Sent(stub.url.removesuffix(f"/{ACCOUNT}"), heard)
    service = QUEUE if "/claims" in request.url else TABLE
    assert request.headers["authorization"] == request.signed_by(policy(service))
    assert request.headers["x-ms-version"] == service.version


def test_a_request_is_dated_when_it_is_sent() -> None:
    assert http_date(1_800_000_000) == "Fri, 15 Jan 2027 08:00:00 GMT"
    times = iter([1_800_000_000.9, 1_800_000_001.0])
    with Stub(NO_CONTENT) as stub:
        client = RestClient(
            TABLE, Connections(stub.url), SharedKey(ACCOUNT, DEFAULT_KEY), Counter(), now=lambda: next(times)
        )
        for _ in range(2):
            client.send(Request("DELETE", "/t()"), lambda _: None)
    dates = [re.findall(r"x-ms-date: (.*)\r", heard.decode()) for heard in stub.heard]
    assert dates == [["Fri, 15 Jan 2027 08:00:00 GMT"], ["Fri, 15 Jan 2027 08:00:01 GMT"]]


@pytest.mark.parametrize("key", ["no base64!", "x"])
def test_a_key_that_is_not_base64_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        SharedKey(ACCOUNT, key)
    assert key not in str(caught.value)


ACCT = f"AccountName=acct;AccountKey={DEFAULT_KEY};"
STRINGS: dict[str, tuple[str, str, dict[str, str]]] = {
    "of development": (
        "UseDevelopmentStorage=true",
        "devstoreaccount1",
        {
            "queue": "http://127.0.0.1:10001/devstoreaccount1",
            "table": "http://127.0.0.1:10002/devstoreaccount1",
            "blob": "http://127.0.0.1:10000/devstoreaccount1",
        },
    ),
    "of Azure's portal": (
        f"{ACCT}DefaultEndpointsProtocol=https;EndpointSuffix=core.windows.net",
        "acct",
        {name: f"https://acct.{name}.core.windows.net" for name in ("queue", "table", "blob")},
    ),
    "of another cloud": (
        f"{ACCT}DefaultEndpointsProtocol=http;EndpointSuffix=core.chinacloudapi.cn;",
        "acct",
        {name: f"http://acct.{name}.core.chinacloudapi.cn" for name in ("queue", "table", "blob")},
    ),
    "with nothing but the key": (
        ACCT.rstrip(";"),
        "acct",
        {name: f"https://acct.{name}.core.windows.net" for name in ("queue", "table", "blob")},
    ),
    "with endpoints": (
        f"{ACCT}QueueEndpoint=http://[::1]:1/acct;TableEndpoint=https://t/x/y/;BlobEndpoint=http://b/acct",
        "acct",
        {"queue": "http://[::1]:1/acct", "table": "https://t/x/y", "blob": "http://b/acct"},
    ),
}


@pytest.mark.parametrize(("string", "name", "endpoints"), STRINGS.values(), ids=STRINGS)
def test_a_connection_string_is_read_as_by_the_sdk(string: str, name: str, endpoints: dict[str, str]) -> None:
    account = AzureAccount(string, "prefix")
    assert account.endpoints == endpoints
    assert account.public_queues.account == account.public_blobs.account == name
    assert (
        account.public_queues.url
        == endpoints["queue"]
        == QueueClient.from_connection_string(string, "name").url.removesuffix("/name")
    )


@pytest.mark.parametrize(
    "string",
    [
        "",
        "nonsense",
        "AccountName=acct",
        "AccountName=acct;AccountKey=no base64",
        "QueueEndpoint=http://q;TableEndpoint=http://t;BlobEndpoint=http://b;SharedAccessSignature=sig=secret",
    ],
)
def test_a_connection_string_without_a_key_is_refused(string: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        AzureAccount(string, "prefix")
    assert "secret" not in str(caught.value)
