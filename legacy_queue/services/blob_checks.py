"""Blobs that came in parts: made one, and compared with what was announced, however long that takes."""

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from threading import Lock, Semaphore, Thread

import structlog

from legacy_queue.domain.artifacts import Artifact
from legacy_queue.domain.errors import QueueError, RequestConflict, ServiceUnavailable
from legacy_queue.stores import Blobs

log = structlog.get_logger()

_WAIT = timedelta(seconds=15)  # a client gives up after 30
_ASK_AGAIN = timedelta(seconds=5)

_Key = tuple[str, str, str]  # the blob, and what was announced


class BlobChecks:
    """A check goes on beyond the call that began it; of one blob there is one at a time in a process.

    ``at_once`` blobs are read at a time, and ``most`` are being checked, or have a conflict to be told.
    """

    def __init__(self, blobs: Blobs, at_once: int = 16, most: int = 256) -> None:
        self._blobs, self._most = blobs, most
        self._checks: dict[_Key, Future[None]] = {}
        self._lock, self._room = Lock(), Semaphore(at_once)

    def see(self, artifact: Artifact, then: Callable[[], object], wait: timedelta = _WAIT) -> None:
        """The parts are joined, are what was announced, and ``then`` was done.

        Raises RequestConflict where they are not; ServiceUnavailable where that takes longer than ``wait``:
        whoever asks again waits for the same check. What ``then`` raises goes through.
        """
        details = artifact.details
        key = artifact.blob_name, details["partsSha256"], details["transferSha256"]
        with self._lock:
            check = self._checks.get(key) or self._begin(key, artifact, then)
        try:
            check.result(wait.total_seconds())
        except TimeoutError:
            raise ServiceUnavailable(
                f"artifact {artifact.name!r} is being checked: ask again for what comes of it", _ASK_AGAIN
            ) from None
        finally:
            if check.done():
                self._forget(key, check)

    def _begin(self, key: _Key, artifact: Artifact, then: Callable[[], object]) -> Future[None]:
        if len(self._checks) >= self._most:
            self._checks = {one: check for one, check in self._checks.items() if not check.done()}
        if len(self._checks) >= self._most:
            raise ServiceUnavailable(f"{self._most} blobs are being checked already, ask again", _ASK_AGAIN)
        check: Future[None] = Future()
        Thread(target=self._do, args=[key, check, artifact, then], name="blob-check", daemon=True).start()
        self._checks[key] = check
        return check

    def _do(self, key: _Key, check: Future[None], artifact: Artifact, then: Callable[[], object]) -> None:
        try:
            with self._room:
                self._compare(artifact)
                then()
            check.set_result(None)
        except RequestConflict as conflict:  # it is kept until it is told
            check.set_exception(conflict)
            return
        except BaseException as error:  # also when the thread is being ended: others wait
            if not isinstance(error, QueueError):
                log.error("blob-not-checked", task_id=artifact.task_id, exc_info=error)
            check.set_exception(error)
        self._forget(key, check)

    def _forget(self, key: _Key, check: Future[None]) -> None:
        with self._lock:
            if self._checks.get(key) is check:
                del self._checks[key]

    def _compare(self, artifact: Artifact) -> None:
        """Each part was checked when it came in; what they make together is checked here."""
        name, details = artifact.blob_name, artifact.details
        try:
            self._blobs.join_parts(
                name, details["partCount"], artifact.content_type, artifact.content_encoding
            )
        except KeyError:
            raise RequestConflict(
                f"not all {details['partCount']} parts of artifact {artifact.name!r} were uploaded yet"
            ) from None
        length, sha256 = 0, hashlib.sha256()
        for chunk in self._blobs.read(name):
            length += len(chunk)
            sha256.update(chunk)
            time.sleep(0)  # gevent's way to let others run, where reading never waits
        found = {"transferLength": length, "transferSha256": sha256.hexdigest()}
        wanted = {what: details[what] for what in found}
        if found != wanted:
            raise RequestConflict(
                f"the parts of artifact {artifact.name!r} do not make what was announced",
                {"announced": wanted, "found": found},
            )
