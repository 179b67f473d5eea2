"""Checks the content of blobs that were uploaded in parts, however long that takes."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from threading import Lock, Semaphore, Thread

import structlog

from legacy_queue.cooperation import let_others_run
from legacy_queue.domain.artifact import BlobArtifact
from legacy_queue.domain.errors import QueueError, RequestConflict, ServiceUnavailable
from legacy_queue.stores import Blobs

log = structlog.get_logger()

_CHECK_TIMEOUT = timedelta(seconds=15)  # clients give up after 30 s
_RETRY_AFTER = timedelta(seconds=5)

_CheckKey = tuple[str, str, str]  # the name of the blob, and the SHA-256 of its parts and of the whole


class BlobChecks:
    """Joins blobs that were uploaded in parts, and compares them with the declared content.

    A check may last longer than the call that began it. A process makes only one check of a blob at a time.
    It reads up to ``max_reads`` blobs at a time. At most ``max_checks`` blobs are being read or wait for it.
    """

    def __init__(self, blobs: Blobs, max_reads: int = 16, max_checks: int = 256) -> None:
        self._blobs = blobs
        self._max_checks = max_checks
        self._checks: dict[_CheckKey, Future[None]] = {}
        self._lock = Lock()
        self._reads = Semaphore(max_reads)

    def check(
        self, artifact: BlobArtifact, then: Callable[[], object], timeout: timedelta = _CHECK_TIMEOUT
    ) -> None:
        """Join the parts, compare them with the declared content, and call ``then``.

        Raises RequestConflict if the content differs. Raises ServiceUnavailable after ``timeout``: a repeated
        call waits for the same check. Errors of ``then`` pass through.
        """
        key = artifact.blob_name, artifact.parts_sha256, artifact.transfer_sha256
        with self._lock:
            check = self._checks.get(key) or self._begin(key, artifact, then)
        try:
            check.result(timeout.total_seconds())
        except TimeoutError:
            raise ServiceUnavailable(
                f"artifact {artifact.name!r} is being checked: repeat the call to get the result",
                _RETRY_AFTER,
            ) from None

    def _begin(self, key: _CheckKey, artifact: BlobArtifact, then: Callable[[], object]) -> Future[None]:
        if len(self._checks) >= self._max_checks:
            raise ServiceUnavailable(
                f"{self._max_checks} blobs are already being checked: try again", _RETRY_AFTER
            )
        check: Future[None] = Future()
        Thread(target=self._do, args=[key, check, artifact, then], name="blob-check", daemon=True).start()
        self._checks[key] = check
        return check

    def _do(
        self, key: _CheckKey, check: Future[None], artifact: BlobArtifact, then: Callable[[], object]
    ) -> None:
        failure: BaseException | None = None
        try:
            with self._reads:
                self._compare(artifact)
                then()
        except BaseException as error:
            failure = error
            if not isinstance(error, QueueError):
                log.error("blob-not-checked", task_id=artifact.task_id, exc_info=error)
        with self._lock:
            del self._checks[key]  # before the waiting calls go on, so that a next call makes a new check
        if failure:
            check.set_exception(failure)
        else:
            check.set_result(None)

    def _compare(self, artifact: BlobArtifact) -> None:
        """Check the whole blob. Each part was checked when it came in."""
        name = artifact.blob_name
        try:
            self._blobs.join_parts(name, artifact.part_count, artifact.content_type, artifact.encoding)
        except KeyError:
            raise RequestConflict(
                f"not all {artifact.part_count} parts of artifact {artifact.name!r} have been uploaded yet"
            ) from None
        length = 0
        sha256 = hashlib.sha256()
        for chunk in self._blobs.read(name):
            length += len(chunk)
            sha256.update(chunk)
            let_others_run()  # a read may not wait for anything, and so never let others run
        found = {"transferLength": length, "transferSha256": sha256.hexdigest()}
        wanted = {"transferLength": artifact.transfer_length, "transferSha256": artifact.transfer_sha256}
        if found != wanted:
            raise RequestConflict(
                f"the parts of artifact {artifact.name!r} differ from the declared content",
                {"announced": wanted, "found": found},
            )
