"""Requests are signed as the SDK's own policies sign them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest
from azure.data.tables._authentication import SharedKeyCredentialPolicy as TablePolicy
from azure.storage.queue._shared.authentication import SharedKeyCredentialPolicy as QueuePolicy
from hypothesis import given, settings
from hypothesis import strategies as st

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azure.connection import Connections, Response
from legacy_queue.adapters.azure.rest import (
    BLOB,
    QUEUE,
    TABLE,
    Request,
    RestClient,
    Service,
    SharedKey,
)
from legacy_queue.local_processes.azurite import ACCOUNT, DEFAULT_KEY

URLS = {
    "Azurite": f"http://127.0.0.1:10001/{ACCOUNT}",
    "Azure": f"https://{ACCOUNT}.queue.core.windows.net",
    "a path": "http://gateway/storage/account",
    "IPv6": "http://[::1]:10001/devstoreaccount1",
}
DATES = {1_800_000_000.9: "Fri, 15 Jan 2027 08:00:00 GMT", 1_800_000_001.0: "Fri, 15 Jan 2027 08:00:01 GMT"}


class Recorded(Connections):
    """Keeps the request, and answers it."""

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        self.authorization = headers["authorization"]
        self.date = headers["x-ms-date"]
        unsigned = {name: value for name, value in headers.items() if name != "authorization"}
        if body is not None:
            unsigned["content-length"] = str(len(body))
        self.unsigned = HttpRequest(
            method, f"{'https' if self._context else 'http'}://{self.host}{target}", unsigned
        )
        return Response(204, {}, b"")


def recorded(service: Service, request: Request, url: str = URLS["Azurite"], now: float = 0) -> Recorded:
    """The request as ``service`` sent it."""
    connections = Recorded(url)
    client = RestClient(service, connections, SharedKey(ACCOUNT, DEFAULT_KEY), Counter(), now=lambda: now)
    client.send(request, lambda _: None)
    return connections


def signed_by_sdk(service: Service, request: HttpRequest) -> str:
    """The Authorization that the SDK's policy gives to the request."""
    untyped: Any = TablePolicy if service is TABLE else QueuePolicy
    key = [AzureNamedKeyCredential(ACCOUNT, DEFAULT_KEY)] if service is TABLE else [ACCOUNT, DEFAULT_KEY]
    policy = untyped(*key)
    policy.on_request(PipelineRequest(request, PipelineContext(None)))
    return str(request.headers["Authorization"])


text = st.text(st.characters(codec="utf-8"), max_size=20)
requests = st.builds(
    Request,
    st.sampled_from(["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"]),
    st.sampled_from(["/q/messages", "/t(PartitionKey='a%27%27b',RowKey='%C3%A4')", "/$batch"]),
    st.dictionaries(
        st.sampled_from(["popreceipt", "comp", "visibilitytimeout", "numofmessages", "$filter"]), text
    ).map(lambda params: sorted(params.items())),
    st.fixed_dictionaries(
        {"accept": st.just("application/xml")},
        optional={
            "content-type": st.sampled_from(["application/xml", "multipart/mixed; boundary=x"]),
            "if-match": st.just("W/\"datetime'2026'\""),
            "if-none-match": st.just("*"),
            "x-ms-blob-content-type": st.just("text/plain"),
            "x-ms-blob-content-encoding": st.just("gzip"),
            "x-ms-range": st.just("bytes=0-9"),
            "x-ms-meta-last_used": st.just("2026-11-22"),
            "x-ms-meta-provisioner_id": st.just("a"),
        },
    ),
    st.none() | st.binary(max_size=20),
)


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
@pytest.mark.parametrize("service", [TABLE, QUEUE, BLOB], ids=lambda service: service.name)
@settings(max_examples=25)  # of each service at each URL: 300
@given(request=requests)
def test_requests_are_signed_as_by_the_sdk(service: Service, url: str, request: Request) -> None:
    if service is TABLE:
        request = request._replace(params=[param for param in request.params if param[0] == "$filter"])
    sent = recorded(service, request, url)
    assert sent.authorization == signed_by_sdk(service, sent.unsigned)


def test_a_request_is_dated_when_it_is_sent() -> None:
    for now, date in DATES.items():
        assert recorded(TABLE, Request("DELETE", "/t()"), now=now).date == date


@pytest.mark.parametrize(
    "string",
    [
        "",
        "AccountName=acct",
        "AccountName=acct;AccountKey=no base64",
        "QueueEndpoint=http://q;TableEndpoint=http://t;BlobEndpoint=http://b;SharedAccessSignature=sig=secret",
    ],
)
def test_a_connection_string_without_a_key_is_refused(string: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        AzureAccount(string, "prefix")
    assert "secret" not in str(caught.value)
