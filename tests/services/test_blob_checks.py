"""Checks of blobs in parts that last longer than a call waits."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.artifact import BlobArtifact
from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.services.artifacts.blob_checks import BlobChecks
from tests.memory_server import FakeClock, memory_storage
from tests.services.artifact_calls import sha256
from tests.services.harness import HOUR, NOW

PARTS = (b"one", b"two")
AT_ONCE, LONG = timedelta(0), timedelta(seconds=30)


class ObservedTimeout(timedelta):
    """Half a minute. Calls ``when_waiting`` when a call has joined a check and begins to wait."""

    when_waiting: Callable[[], object]

    def total_seconds(self) -> float:
        self.when_waiting()
        return super().total_seconds()


def observed_timeout(when_waiting: Callable[[], object]) -> ObservedTimeout:
    long = ObservedTimeout(seconds=30)
    long.when_waiting = when_waiting
    return long


class Stage:
    """Uploaded blobs in parts, and checks that continue only when a test lets them."""

    def __init__(self, **bounds: int) -> None:
        self.blobs = memory_storage(FakeClock(NOW), "http://127.0.0.1:1/azure", "q").blobs
        self.checks = BlobChecks(self.blobs, **bounds)
        self.done: list[str] = []
        self.begun: list[str] = []
        self.error: Exception | None = None
        self.entered, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)
        read = self.blobs.read
        self.blobs.read = lambda name: self._held(name, read(name))  # type: ignore[method-assign]

    def blob(self, name: str = "name", parts: Iterable[bytes] = PARTS, declared: bytes = b"") -> BlobArtifact:
        parts = list(parts)
        whole = declared or b"".join(parts)
        artifact = BlobArtifact(
            task_id="task",
            run_id=0,
            name=name,
            content_type="text/plain",
            expires=NOW + HOUR,
            is_complete=False,
            content_length=len(whole),
            content_sha256=sha256(whole),
            transfer_length=len(whole),
            transfer_sha256=sha256(whole),
            content_encoding="identity",
            part_count=len(parts),
            parts_sha256=sha256(b"".join(parts)),
        )
        for number, part in enumerate(parts, 1):
            self.blobs.write_part(artifact.blob_name, number, [part])
        return artifact

    def check(self, artifact: BlobArtifact, wait: timedelta = AT_ONCE) -> None:
        self.checks.check(artifact, lambda: self.done.append(artifact.name), wait)

    def begin(self, artifact: BlobArtifact) -> None:
        """Begin a check that no call waits for."""
        with pytest.raises(ServiceUnavailable, match="is being checked"):
            self.check(artifact)
        assert self.entered.acquire(timeout=30)

    def end(self, checks: int = 1) -> None:
        self.may_go_on.release(checks)

    def _held(self, name: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        self.begun.append(name)
        self.entered.release()
        assert self.may_go_on.acquire(timeout=30)
        if self.error:
            raise self.error
        yield from chunks


def test_all_calls_that_wait_for_a_check_get_its_conflict() -> None:
    stage = Stage()
    blob = stage.blob(declared=b"another")
    stage.begin(blob)
    all_wait = threading.Barrier(4, stage.end)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(stage.check, blob, observed_timeout(all_wait.wait)) for _ in range(4)]
    assert [type(call.exception()) for call in asked] == [RequestConflict] * 4
    assert len(stage.begun) == 1


@pytest.mark.parametrize(
    ("error", "logged"),
    [(ServiceUnavailable("storage is away"), []), (ZeroDivisionError("a bug"), ["blob-not-checked"])],
    ids=["storage away", "bug"],
)
def test_a_check_that_failed_is_repeated_by_the_next_call(error: Exception, logged: list[str]) -> None:
    stage = Stage()
    blob, stage.error = stage.blob(), error
    with capture_logs() as logs:
        stage.end()
        with pytest.raises(type(error)):
            stage.check(blob, LONG)
    assert [entry["event"] for entry in logs] == logged
    stage.error = None
    stage.end()
    stage.check(blob, LONG)
    assert stage.done == ["name"]


def test_running_checks_are_bounded() -> None:
    stage = Stage(max_checks=2)
    blobs = [stage.blob(name) for name in "abc"]
    for blob in blobs[:2]:
        stage.begin(blob)
    with pytest.raises(ServiceUnavailable, match="2 blobs are being checked"):
        stage.check(blobs[2])
    stage.check(blobs[0], observed_timeout(lambda: stage.end(2)))
    stage.end()
    stage.check(blobs[2], LONG)
