"""Finds a run's artifacts, creates them with the claim's newest credentials, and uploads them.

An artifact that fails raises nothing: a line of the log and a step say so, and the caller decides the
result of the task. Never uploads a file outside of the task's working directory, whatever path the payload
declares and whatever links the task has made.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from mimetypes import MimeTypes
from pathlib import Path

from legacy_queue.worker.command import BACKING_LOG, LIVE_LOG, Declared
from legacy_queue.worker.held_claim import HeldClaim
from legacy_queue.worker.http_client import Content, Unavailable
from legacy_queue.worker.queue_client import QueueClient, QueueRefused
from legacy_queue.worker.task_log import LOG_TYPE, TaskLog
from legacy_queue.worker.worker_settings import Notify, Step

UNKNOWN_TYPE = "application/octet-stream"
MAX_MESSAGE = 4096  # characters of an error artifact
MAX_SIZE = 5 * 1024**3  # bytes that S3 takes in one PUT

_TYPES = MimeTypes()  # the same on every machine
_TYPES.add_type("text/plain", ".log")


class ArtifactUploader:
    """Belongs to the run's own thread. Each method returns whether it has uploaded everything."""

    def __init__(self, held: HeldClaim, client: QueueClient, notify: Notify, log: TaskLog) -> None:
        self._held, self._client, self._notify, self._log = held, client, notify, log
        self._names: set[str] = set()  # of the declared artifacts

    def live_log(self, url: str) -> bool:
        """Make ``public/logs/live.log`` refer to this URL, where the log can be read while it grows."""
        return self._create(LIVE_LOG, "reference", {"contentType": LOG_TYPE, "url": url})

    def log(self) -> bool:
        """Upload the log as ``public/logs/live_backing.log`` and make ``public/logs/live.log`` refer to it.

        As docker-worker did: a reference is the only kind of artifact that may be replaced.
        """
        content, url = Content(self._log.file), self._client.artifact_url(self._held.claim, BACKING_LOG)
        is_uploaded = self._create(BACKING_LOG, "s3", {"contentType": LOG_TYPE}, content=content)
        return is_uploaded and self.live_log(url)

    def declared(self, artifacts: Iterable[Declared], directory: Path) -> bool:
        """Upload all artifacts of the payload; a file that is missing becomes an ``error`` artifact."""
        results = [self._declared(artifact, directory) for artifact in artifacts]  # after a failure too
        return all(results)

    def _declared(self, artifact: Declared, directory: Path) -> bool:
        try:
            files = _find_files(artifact, directory)
            results = [self._file(*file, artifact.expires) for file in files]
            return all(results)
        except OSError as failure:
            return self._failed(artifact.name, f"{artifact.path} cannot be read: {failure.strerror}")

    def _file(self, name: str, path: Path, reason: str, message: str, expires: datetime | None) -> bool:
        if name in self._names:
            return self._failed(name, "another declared file has this name")
        self._names.add(name)
        if reason:
            self._create(name, "error", {"reason": reason, "message": message[:MAX_MESSAGE]}, expires)
            return self._failed(name, message[:MAX_MESSAGE])
        with path.open("rb") as file:
            return self._create(name, "s3", {"contentType": content_type(name)}, expires, Content(file))

    def _create(
        self,
        name: str,
        storage_type: str,
        fields: Mapping[str, str],
        expires: datetime | None = None,
        content: Content | None = None,
    ) -> bool:
        """Without ``expires`` the artifact expires with its task, and never later."""
        if self._held.is_lost:
            return False
        claim = self._held.claim
        until = min(expires or claim.expires, claim.expires).astimezone(UTC)
        wire_time = until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        artifact = {"storageType": storage_type, "expires": wire_time, **fields}
        try:
            put_url = self._client.create_artifact(claim, name, artifact)
            if put_url and content is not None:
                self._client.upload(put_url, content, fields["contentType"])
        except (QueueRefused, Unavailable) as failure:
            return self._failed(name, str(failure))
        self._notify(Step.ARTIFACT, name=name, storage_type=storage_type)
        return True

    def _failed(self, name: str, detail: str) -> bool:
        self._notify(Step.ARTIFACT_FAILED, name=name, detail=detail)
        self._log.say(f"artifact {name}: {detail}")
        return False


def content_type(name: str) -> str:
    """The type of the name's ending; a compressed file does not have the type of its content."""
    guessed, encoding = _TYPES.guess_type(f"/{name}")
    return guessed if guessed and not encoding else UNKNOWN_TYPE


def _find_files(declared: Declared, directory: Path) -> Iterator[tuple[str, Path, str, str]]:
    """The declared file, or all files below the declared directory: (name, path, reason, message).

    Reason and message are createArtifact's if the file cannot be uploaded, else "". As docker-worker did,
    leaves out of a directory all but files and directories; a link that leads out of the working directory
    is an error. Raises OSError.
    """
    name, top = declared.name, directory / declared.path
    kind, is_kind = ("directory", os.path.isdir) if declared.is_directory else ("file", os.path.isfile)
    invalid, outside = "invalid-resource-on-worker", "{} leads out of the task's working directory"
    if _leads_out(top, directory):
        yield name, top, invalid, outside.format(declared.path)
    elif not os.path.lexists(top):
        yield name, top, "file-missing-on-worker", f"There is no {kind} {declared.path}"
    elif not is_kind(top):
        yield name, top, invalid, f"{declared.path} is not a {kind}"
    elif not declared.is_directory:
        yield name, top, *_too_large(top)
    else:
        for folder, folders, files in os.walk(top, onerror=_raise):
            folders.sort()
            for path in (Path(folder, entry) for entry in sorted(folders + files)):
                inner = path.relative_to(top)
                if path.is_symlink() and _leads_out(path, directory):
                    yield f"{name}/{inner}", path, invalid, outside.format(inner)
                elif os.path.isfile(path):
                    yield f"{name}/{inner}", path, *_too_large(path)


def _leads_out(path: Path, directory: Path) -> bool:
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _too_large(path: Path) -> tuple[str, str]:
    if (size := path.stat().st_size) <= MAX_SIZE:
        return "", ""
    return "too-large-file-on-worker", f"{path.name} has {size} bytes; an upload may have {MAX_SIZE}"


def _raise(failure: OSError) -> None:
    raise failure
