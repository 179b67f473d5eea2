import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from tempfile import TemporaryFile

import pytest

from legacy_queue.worker import Credentials, Refused, WorkerSettings
from legacy_queue.worker.http_client import RETRIES, Content, Unavailable
from legacy_queue.worker.queue_client import QueueClient
from legacy_queue.worker.worker_settings import Context

from .conftest import FakeClock
from .fake_queue import ACCESS_TOKEN, CLIENT_ID, FakeQueue

TASK_ID = "fN1SbArXTPSVFNUvaOlinQ"
NAME = {"workerGroup": "group", "workerId": "id"}


@pytest.fixture
def client(context: Context) -> Iterator[QueueClient]:
    with closing(QueueClient(context)) as client:
        yield client


@pytest.mark.parametrize("prefix", ["/v1", "/v1/", "/api/queue/v1"])
def test_a_request_is_signed_under_every_prefix(fake_queue: FakeQueue, context: Context, prefix: str) -> None:
    settings = replace(context.settings, base_url=fake_queue.root_url + prefix)
    with closing(QueueClient(replace(context, settings=settings))) as client:
        client.poll_task_urls()
    [request] = fake_queue.requests_for("pollTaskUrls")
    assert request.client_id == CLIENT_ID
    assert request.ext is None


def test_a_certificate_is_sent_as_an_object_in_ext(fake_queue: FakeQueue, client: QueueClient) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    client.report(claim, "failed")
    [report] = fake_queue.requests_for("reportFailed")
    assert report.ext == {"certificate": {"version": 1, "scopes": [], "seed": "1"}}


def test_a_worker_with_temporary_credentials_sends_its_certificate(
    fake_queue: FakeQueue, context: Context
) -> None:
    own = Credentials(CLIENT_ID, ACCESS_TOKEN, certificate=json.dumps({"version": 1}))
    settings = replace(context.settings, credentials=own)
    with closing(QueueClient(replace(context, settings=settings))) as client:
        client.poll_task_urls()
    assert fake_queue.requests_for("pollTaskUrls")[0].ext == {"certificate": {"version": 1}}


def test_reclaims_and_reports_carry_no_body_except_the_reason_of_an_exception(
    fake_queue: FakeQueue, client: QueueClient
) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    client.reclaim_task(claim)
    client.report(claim, "completed")
    client.report(claim, "failed")
    client.report(claim, "exception", "worker-shutdown")
    bodies = [request.raw_body for request in fake_queue.requests[1:]]
    assert bodies == [b"", b"", b"", b'{"reason": "worker-shutdown"}']


def test_a_5xx_is_tried_again_five_times_with_growing_delays(
    fake_queue: FakeQueue, client: QueueClient, clock: FakeClock
) -> None:
    fake_queue.script("claimTask", *[503] * RETRIES)
    assert client.claim_task(TASK_ID, 0, NAME).task_id == TASK_ID
    assert clock.pauses == [0.5, 1, 2, 4, 8]
    fake_queue.script("claimTask", *[500] * (RETRIES + 1))
    with pytest.raises(Unavailable, match="claimTask: answered 500"):
        client.claim_task(TASK_ID, 0, NAME)


def test_a_reclaim_is_one_attempt(fake_queue: FakeQueue, client: QueueClient) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    fake_queue.script("reclaimTask", 503)
    with pytest.raises(Unavailable, match="reclaimTask: answered 503"):
        client.reclaim_task(claim)
    assert fake_queue.operations() == ["claimTask", "reclaimTask"]


def test_a_broken_connection_is_tried_again(
    fake_queue: FakeQueue, client: QueueClient, clock: FakeClock
) -> None:
    fake_queue.close()
    with pytest.raises(Unavailable, match="ConnectionError"):
        client.poll_task_urls()
    assert len(clock.pauses) == RETRIES


def test_an_answer_that_breaks_off_is_requested_again(fake_queue: FakeQueue, client: QueueClient) -> None:
    fake_queue.truncated = 1
    client.poll_task_urls()
    assert fake_queue.operations() == ["pollTaskUrls"] * 2


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 410])
def test_a_4xx_is_never_tried_again(fake_queue: FakeQueue, client: QueueClient, status: int) -> None:
    fake_queue.script("claimTask", status)
    with pytest.raises(Refused) as refused:
        client.claim_task(TASK_ID, 0, NAME)
    assert fake_queue.operations() == ["claimTask"]
    # and not the request, which the original repeats
    assert str(refused.value) == f"claimTask: {status} Scripted: says {status}"


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>", b"[]", b"null", b'{"status": 1}', b"[" * 100_000, b'{"status": {"taskId": "x"}}'],
)
def test_an_answer_that_is_not_as_documented_raises_unavailable(
    fake_queue: FakeQueue, client: QueueClient, answer: bytes
) -> None:
    fake_queue.script("claimTask", answer)
    with pytest.raises(Unavailable, match="claimTask: the answer is not as documented"):
        client.claim_task(TASK_ID, 0, NAME)
    for operation, call in (
        ("pollTaskUrls", client.poll_task_urls),
        ("claimWork", lambda: client.claim_work({})),
    ):
        fake_queue.script(operation, answer)
        with pytest.raises(Unavailable, match="the answer is not as documented"):
            call()


def test_a_worker_that_stops_repeats_only_reports(
    fake_queue: FakeQueue, client: QueueClient, context: Context, clock: FakeClock
) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    context.stopping.set()
    fake_queue.script("claimTask", 503)
    fake_queue.script("createArtifact", 503)
    fake_queue.script("reportCompleted", *[503] * RETRIES)
    with pytest.raises(Unavailable):
        client.claim_task(TASK_ID, 0, NAME)
    with TemporaryFile() as file, pytest.raises(Unavailable):
        client.create_artifact(claim, "public/x", Content(file), "text/plain")
    assert len(clock.pauses) == 2
    client.report(claim, "completed")
    assert len(clock.pauses) == 2 + RETRIES


def test_no_token_is_in_a_repr(client: QueueClient, settings: WorkerSettings) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    assert "token" not in repr((claim, settings)).replace("access_token", "")
