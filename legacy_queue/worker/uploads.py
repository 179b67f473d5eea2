"""A run's artifacts: created with the claim's newest credentials, and uploaded.

None of it raises for an artifact that could not be had: the log says so, a step tells it, and the caller
decides what that means for the task.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from mimetypes import MimeTypes
from pathlib import Path

from legacy_queue.worker.declared import Made, NotMade, look_for
from legacy_queue.worker.held_claim import HeldClaim
from legacy_queue.worker.http import Content, Unavailable
from legacy_queue.worker.payload import Declared
from legacy_queue.worker.queue_client import QueueClient, QueueRefused
from legacy_queue.worker.steps import Step, Tell
from legacy_queue.worker.task_log import TaskLog

LIVE_LOG = "public/logs/live.log"
BACKING_LOG = "public/logs/live_backing.log"
LOG_TYPE = "text/plain; charset=utf-8"
UNKNOWN_TYPE = "application/octet-stream"
LONGEST_MESSAGE = 4096  # characters of an error artifact

_TYPES = MimeTypes()  # the same on every machine
_TYPES.add_type("text/plain", ".log")


class Uploads:
    """For the thread that sees a run through. Each method says whether all is there that it is to upload."""

    def __init__(self, held: HeldClaim, client: QueueClient, tell: Tell, log: TaskLog) -> None:
        self._held = held
        self._client = client
        self._tell = tell
        self._log = log
        self._names: set[str] = set()  # of what was declared

    def live_log(self, url: str) -> bool:
        """``public/logs/live.log`` leads to this URL, where the log can be read while it grows."""
        return self._create(LIVE_LOG, "reference", self._held.claim.expires, contentType=LOG_TYPE, url=url)

    def log(self) -> bool:
        """The whole log is ``public/logs/live_backing.log``, and ``public/logs/live.log`` leads there.

        docker-worker's way: a reference is the one kind of artifact that may be replaced.
        """
        content = Content(self._log.file)
        return self._create(
            BACKING_LOG, "s3", self._held.claim.expires, content, contentType=LOG_TYPE
        ) and self.live_log(self._client.artifact_url(self._held.claim, BACKING_LOG))

    def declared(self, artifacts: Iterable[Declared], directory: Path) -> bool:
        """All that the payload declares; an ``error`` artifact stands for what the task has not made."""
        are_there = [self._declared(artifact, directory) for artifact in artifacts]
        return all(are_there)

    def _declared(self, artifact: Declared, directory: Path) -> bool:
        latest = self._held.claim.expires
        expires = min(artifact.expires or latest, latest)
        try:
            are_there = [self._found(found, expires) for found in look_for(artifact, directory)]
        except OSError as failure:
            return self._failed(artifact.name, f"{artifact.path} cannot be read: {failure.strerror}")
        return all(are_there)

    def _found(self, found: Made | NotMade, expires: datetime) -> bool:
        if found.name in self._names:
            return self._failed(found.name, "another file that was declared has this name")
        self._names.add(found.name)
        if isinstance(found, Made):
            with found.path.open("rb") as file:
                return self._create(
                    found.name, "s3", expires, Content(file), contentType=content_type(found.name)
                )
        message = found.message[:LONGEST_MESSAGE]
        self._create(found.name, "error", expires, reason=found.reason, message=message)
        return self._failed(found.name, message)

    def _create(
        self, name: str, storage_type: str, expires: datetime, content: Content | None = None, **more: str
    ) -> bool:
        if self._held.is_lost:
            return False
        until = expires.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        artifact = {"storageType": storage_type, "expires": until, **more}
        try:
            put_url = self._client.create_artifact(self._held.claim, name, artifact)
            if put_url and content is not None:
                self._client.upload(put_url, content, more["contentType"])
        except (QueueRefused, Unavailable) as failure:
            return self._failed(name, str(failure))
        self._tell(Step.ARTIFACT, name=name, storage_type=storage_type)
        return True

    def _failed(self, name: str, detail: str) -> bool:
        self._tell(Step.ARTIFACT_FAILED, name=name, detail=detail)
        self._log.say(f"artifact {name}: {detail}")
        return False


def content_type(name: str) -> str:
    """By the name's ending; what is compressed is not what it holds."""
    guessed, encoding = _TYPES.guess_type(f"/{name}")
    return guessed if guessed and not encoding else UNKNOWN_TYPE
