"""``POST /control/v1/reset`` removes everything, and then the server works on."""

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, EnvironBuilder, TestResponse, run_wsgi_app

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.clock import SystemClock
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.http.current_app import CurrentApp
from legacy_queue.http.request_log import WsgiApp
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.wiring import build, served_file
from tests.http.calls import NOW, ROOT_URL, Queue, refused, succeeded
from tests.http.test_control import clock
from tests.system.processes import wait_until


def reset(queue: Queue) -> TestResponse:
    return queue.send("POST", "/control/v1/reset")


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True)


def polling_still_works(queue: Queue) -> bool:
    """Whether signed URLs from before a reset find an empty queue, then get and delete the next message."""
    queue.create()
    urls = queue.poll_urls()[-1]
    succeeded(reset(queue))
    assert queue.poll(urls["signedPollUrl"]) == []
    task_id = queue.create()
    [message] = queue.poll(urls["signedPollUrl"])
    assert message.task_id == task_id
    return queue.delete(urls["signedDeleteUrl"], message.lease).status_code == 204


@pytest.mark.parametrize("storage", ["memory", "embedded"])
def test_signed_urls_from_before_a_reset_still_work(queue: Queue, tmp_path: Path, storage: str) -> None:
    """When these are refused, scriptworker 3.1.2 and generic-worker 8.1.1 do not fetch new ones."""
    if storage == "embedded":
        settings = replace(queue.settings, storage=storage, data_dir=tmp_path)
        with served_file(settings):
            queue.server = build(settings, ROOT_URL, queue.clock)
            queue.server.storage.account.check()
            queue.http = Client(queue.server.app)
            assert polling_still_works(queue)
    else:
        assert polling_still_works(queue)


def test_a_reset_ends_event_streams(queue: Queue) -> None:
    stream = queue.http.get("/events", base_url=ROOT_URL, environ_overrides={"RAW_URI": "/events"})
    chunks = iter(stream.iter_encoded())
    assert next(chunks).startswith(b"retry")

    def read() -> None:
        list(chunks)
        stream.close()

    ended = threading.Thread(target=read)
    ended.start()
    succeeded(reset(queue))
    ended.join(30)
    assert not ended.is_alive()


@pytest.fixture
def running(queue: Queue) -> Iterator[Queue]:
    """A server whose background threads run."""
    queue.server.background.start()
    yield queue
    queue.server.background.stop()


def test_the_background_threads_work_after_a_reset(running: Queue) -> None:
    before = threading.active_count()
    for _ in range(3):
        succeeded(reset(running))
    task_id = running.running()
    running.clock.advance(timedelta(minutes=21))
    assert wait_until(lambda: running.state(task_id) == "pending")
    assert wait_until(lambda: threading.active_count() <= before)


def test_an_azure_account_cannot_be_reset(queue: Queue) -> None:
    connection = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=UzNDUkVU;EndpointSuffix=a.test"
    settings = replace(queue.settings, storage="azure", connection_string=connection)
    queue.http = Client(build(settings, ROOT_URL, queue.clock).app)
    refused(reset(queue), 409, "RequestConflict", "--storage azurite or memory")


@pytest.fixture
def on_azurite(queue: Queue, azurite: Azurite) -> Queue:
    """A server on Azurite, under a prefix of its own."""
    prefix, connection = f"r{secrets.token_hex(4)}", azurite.connection_string
    queue.settings = replace(
        queue.settings, storage="azurite", connection_string=connection, queue_prefix=prefix
    )
    queue.server = build(queue.settings, ROOT_URL)
    queue.server.storage.account.check()
    queue.http = Client(queue.server.app)
    queue.clock.advance(SystemClock().now() - NOW)
    return queue


def test_on_azurite_a_reset_removes_everything_under_the_prefix_and_nothing_else(on_azurite: Queue) -> None:
    queue, prefix = on_azurite, on_azurite.settings.queue_prefix
    other = AzureAccount(queue.settings.connection_string or "", f"{prefix}2")
    other.table(f"{prefix}2tasks")
    other.check()
    other.queue(f"{prefix}2-work").create({})
    other.table(f"{prefix}2tasks").insert("a", "b", {"c": "d"})
    other.container.put("name", b"content", "text/plain", None)
    task_id = queue.running()
    old = queue.server.storage.account
    old.container.put("name", b"content", "text/plain", None)
    succeeded(reset(queue))
    refused(queue.call("status", taskId=task_id), 404, "ResourceNotFound")
    with pytest.raises(ServiceUnavailable):  # a request did not end in time
        old.container.put("late", b"late", "text/plain", None)
    new = queue.server.storage.account
    assert [new.queue(name).count() for name, _ in new.queues(f"{prefix}-")] == [0]
    assert new.container.properties("name") is None
    assert [name for name, _ in other.queues(f"{prefix}2-")] == [f"{prefix}2-work"]
    assert other.table(f"{prefix}2tasks").get("a", "b")
    assert other.container.properties("name")
    queue.running(task_id)
    assert not clock(queue)["movable"]


# --- a reset replaces the application behind CurrentApp, which the server calls


Act = Callable[[], object]


def app(answer: bytes) -> WsgiApp:
    """An application that calls the function that came with the request, then answers."""

    def serve(environ: Any, start_response: Any) -> Iterable[bytes]:
        environ["act"]()
        start_response("200 OK", [])
        return [answer]

    return serve


def nothing() -> None:
    """Do nothing."""


def ask(current: CurrentApp, act: Act = nothing) -> bytes:
    environ = {**EnvironBuilder().get_environ(), "act": act}
    chunks, _, _ = run_wsgi_app(current, environ, buffered=True)
    return b"".join(chunks)


def replaced(current: CurrentApp, make: Callable[[], WsgiApp], end: Callable[[], None] = nothing) -> bytes:
    """Replace the application by a request."""
    return ask(current, lambda: current.replace(end, make))


def test_requests_under_way_end_before_the_new_application_is_made() -> None:
    entered, ends = threading.Event(), threading.Event()
    seen = []
    current = CurrentApp(app(b"old"), timedelta(seconds=30))

    def wait() -> None:
        entered.set()
        ends.wait(30)
        seen.append("ended")

    def make() -> WsgiApp:
        seen.append("made")
        return app(b"new")

    request = threading.Thread(target=ask, args=[current, wait])
    request.start()
    assert entered.wait(30)
    replaced(current, make, ends.set)
    request.join(30)
    assert seen == ["ended", "made"]


def test_a_request_during_the_replacement_waits_for_the_new_application() -> None:
    current, answers = CurrentApp(app(b"old")), []
    request = threading.Thread(target=lambda: answers.append(ask(current)))

    def make() -> WsgiApp:
        request.start()
        return app(b"new")

    replaced(current, make)
    request.join(30)
    assert answers == [b"new"]
