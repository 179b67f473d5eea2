import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.worker import Credentials, QueueRefused, WorkerSettings
from legacy_queue.worker.http_client import RETRIES, Unavailable
from legacy_queue.worker.queue_client import QueueClient
from legacy_queue.worker.worker_settings import Context

from .conftest import FakeClock
from .fake_queue import ACCESS_TOKEN, CLIENT_ID, FakeQueue

TASK_ID = "fN1SbArXTPSVFNUvaOlinQ"
NAME = {"workerGroup": "group", "workerId": "id"}


@pytest.fixture
def give_up() -> threading.Event:
    return threading.Event()


@pytest.fixture
def client(settings: WorkerSettings, clock: FakeClock, give_up: threading.Event) -> Iterator[QueueClient]:
    with client_of(settings, clock, give_up) as client:
        yield client


@contextmanager
def client_of(settings: WorkerSettings, clock: FakeClock, give_up: threading.Event) -> Iterator[QueueClient]:
    client = QueueClient(Context(settings, clock, print, threading.Event()), give_up)
    yield client
    client.close()


@pytest.mark.parametrize("prefix", ["/v1", "/v1/", "/api/queue/v1"])
def test_a_request_is_signed_under_every_prefix(
    fake_queue: FakeQueue, settings: WorkerSettings, clock: FakeClock, give_up: threading.Event, prefix: str
) -> None:
    with client_of(replace(settings, base_url=fake_queue.root_url + prefix), clock, give_up) as client:
        client.poll_task_urls()
    [request] = fake_queue.requests_for("pollTaskUrls")
    assert request.client_id == CLIENT_ID
    assert request.ext is None


def test_the_workers_credentials_claim_and_the_newest_of_the_claim_reclaim_and_report(
    fake_queue: FakeQueue, client: QueueClient
) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    claim = client.reclaim_task(claim)
    claim = client.reclaim_task(claim)
    client.report(claim, "completed")
    requests = [(request.operation, request.client_id) for request in fake_queue.requests]
    assert requests == [
        ("claimTask", CLIENT_ID),
        ("reclaimTask", "task-client/1"),
        ("reclaimTask", "task-client/2"),
        ("reportCompleted", "task-client/3"),
    ]


def test_a_certificate_is_sent_as_an_object_in_ext(fake_queue: FakeQueue, client: QueueClient) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    client.report(claim, "failed")
    [report] = fake_queue.requests_for("reportFailed")
    assert report.ext == {"certificate": {"version": 1, "scopes": [], "seed": "1"}}


def test_a_worker_with_temporary_credentials_sends_its_certificate(
    fake_queue: FakeQueue, settings: WorkerSettings, clock: FakeClock, give_up: threading.Event
) -> None:
    own = Credentials(CLIENT_ID, ACCESS_TOKEN, certificate=json.dumps({"version": 1}))
    with client_of(replace(settings, credentials=own), clock, give_up) as client:
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
    assert clock.waits == [0.5, 1, 2, 4, 8]
    fake_queue.script("claimTask", *[500] * (RETRIES + 1))
    with pytest.raises(Unavailable, match="claimTask: answered 500"):
        client.claim_task(TASK_ID, 0, NAME)


@pytest.mark.parametrize(
    ("retry_after", "waited"), [("3", 3), ("0", 0.5), ("86400", 30), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.5)]
)
def test_retry_after_lengthens_a_delay_up_to_half_a_minute(
    fake_queue: FakeQueue, client: QueueClient, clock: FakeClock, retry_after: str, waited: float
) -> None:
    fake_queue.retry_after = retry_after
    fake_queue.script("claimTask", 503)
    client.claim_task(TASK_ID, 0, NAME)
    assert clock.waits == [waited]


def test_each_attempt_is_signed_with_its_own_nonce(fake_queue: FakeQueue, client: QueueClient) -> None:
    fake_queue.script("claimTask", 503)
    client.claim_task(TASK_ID, 0, NAME)
    headers = [request.headers["Authorization"] for request in fake_queue.requests_for("claimTask")]
    assert len(set(headers)) == 2


def test_a_broken_connection_is_tried_again(
    fake_queue: FakeQueue, client: QueueClient, clock: FakeClock
) -> None:
    fake_queue.close()
    with pytest.raises(Unavailable, match="ConnectionError"):
        client.poll_task_urls()
    assert len(clock.waits) == RETRIES


def test_an_answer_that_breaks_off_is_requested_again(fake_queue: FakeQueue, client: QueueClient) -> None:
    fake_queue.truncated = 1
    client.poll_task_urls()
    assert fake_queue.operations() == ["pollTaskUrls"] * 2


def test_a_request_is_not_repeated_after_give_up_is_set(
    fake_queue: FakeQueue, client: QueueClient, give_up: threading.Event
) -> None:
    give_up.set()
    fake_queue.script("claimTask", 503)
    with pytest.raises(Unavailable):
        client.claim_task(TASK_ID, 0, NAME)
    assert fake_queue.operations() == ["claimTask"]


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 410])
def test_a_4xx_is_never_tried_again(fake_queue: FakeQueue, client: QueueClient, status: int) -> None:
    fake_queue.script("claimTask", status)
    with pytest.raises(QueueRefused) as refused:
        client.claim_task(TASK_ID, 0, NAME)
    assert fake_queue.operations() == ["claimTask"]
    assert (refused.value.status, refused.value.code) == (status, "Scripted")
    assert refused.value.detail == f"says {status}"  # and not the request, which the original repeats


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b"null",
        {"runId": None},
        {"takenUntil": "soon"},
        {"takenUntil": "2015-01-22T19:05:57"},
        {"takenUntil": 12},
        {"credentials": None},
        {"credentials": {"clientId": "x"}},
        {"task": {}},
    ],
)
def test_an_answer_that_is_not_a_claim_raises_unavailable(
    fake_queue: FakeQueue, client: QueueClient, answer: Any
) -> None:
    fake_queue.script("claimTask", answer)
    with pytest.raises(Unavailable):
        client.claim_task(TASK_ID, 0, NAME)


@pytest.mark.parametrize(
    ("life", "left_at_refresh"),
    [
        (timedelta(minutes=30), timedelta(minutes=5)),
        (timedelta(minutes=6), timedelta(minutes=3)),
        (timedelta(minutes=-1), timedelta(0)),
    ],
)
def test_poll_urls_are_refreshed_five_minutes_before_they_expire(
    fake_queue: FakeQueue, client: QueueClient, life: timedelta, left_at_refresh: timedelta
) -> None:
    fake_queue.url_life = life
    urls = client.poll_task_urls()
    assert abs(urls.expires - urls.refresh_at - left_at_refresh) < timedelta(seconds=30)


def test_no_token_is_in_a_repr(client: QueueClient, settings: WorkerSettings) -> None:
    claim = client.claim_task(TASK_ID, 0, NAME)
    assert "token" not in repr((claim, settings)).replace("access_token", "")


def test_a_client_sends_nothing_after_disconnect(
    fake_queue: FakeQueue, client: QueueClient, give_up: threading.Event
) -> None:
    client.poll_task_urls()
    give_up.set()
    client.http.disconnect()
    for _ in range(2):
        with pytest.raises(Unavailable, match="no answer"):
            client.claim_work({**NAME, "tasks": 1})
    assert fake_queue.operations() == ["pollTaskUrls"]
