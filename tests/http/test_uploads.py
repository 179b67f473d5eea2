"""Uploads to signed URLs of the server: which requests are accepted and which are refused."""

import base64
import hashlib
import io
from typing import Any

from legacy_queue.services.artifacts.upload_slots import UploadSlots
from tests.http.calls import ROOT_URL, TASK_ID, Queue, bare_client, refused, succeeded

DATA = b"<script>alert(1)</script>"


def put_url(queue: Queue, **changes: Any) -> str:
    queue.running(TASK_ID)
    return str(succeeded(queue.artifact(TASK_ID, "public/a", **changes)).get_json()["putUrl"])


def downloaded(queue: Queue) -> Any:
    location = queue.call("getLatestArtifact", taskId=TASK_ID, name="public/a", credentials=None)
    return queue.send("GET", location.headers["location"], credentials=None)


def test_a_download_has_the_bytes_and_headers_of_the_upload(queue: Queue) -> None:
    html, md5 = "text/html; charset=utf-8", hashlib.md5(DATA, usedforsecurity=False)
    sent = {"Content_Encoding": "gzip", "Content_MD5": base64.b64encode(md5.digest()).decode()}
    answer = queue.upload(put_url(queue, contentType=html), DATA, html, **sent)
    assert (answer.status_code, answer.headers["etag"]) == (200, f'"{md5.hexdigest()}"')
    got = downloaded(queue)
    assert (got.data, got.headers["content-type"]) == (DATA, html)
    assert got.headers["content-encoding"] == "gzip"


def sent_with(queue: Queue, target: str, **environ: Any) -> Any:
    """PUT the DATA with these WSGI variables, which need not be true."""
    path, _, query = target.partition("?")
    return queue.http.put(
        path,
        base_url=ROOT_URL,
        query_string=query,
        data=DATA,
        content_type="text/plain",
        environ_overrides={"RAW_URI": target, **environ},
    )


def test_an_upload_without_a_length_is_refused(queue: Queue) -> None:
    target = put_url(queue).removeprefix(ROOT_URL)
    for more in ({}, {"HTTP_TRANSFER_ENCODING": "chunked"}):
        answer = sent_with(queue, target, CONTENT_LENGTH="", **more)
        refused(answer, 411, "LengthRequired", "content-length is missing")


def test_an_upload_that_ends_too_early_is_not_stored(queue: Queue) -> None:
    target = put_url(queue).removeprefix(ROOT_URL)
    answer = sent_with(queue, target, CONTENT_LENGTH="1000")
    assert (answer.status_code, answer.get_json()["code"]) == (400, "InvalidRequestArguments")
    assert downloaded(queue).status_code == 404


def test_if_all_upload_slots_are_taken_an_upload_is_refused(queue: Queue) -> None:
    url = put_url(queue)
    refusals = []

    class Meanwhile(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            refusals.append(sent_with(queue, target, **{"wsgi.input": None}))
            return super().read(size)

    target = url.removeprefix(ROOT_URL)
    queue.http = bare_client(queue.server.services, UploadSlots(1))
    for _ in range(2):
        refused(queue.upload(f"{url}x", DATA), 403, "AuthorizationFailed")
        assert sent_with(queue, target, CONTENT_LENGTH="1000").status_code == 400
        assert sent_with(queue, target, **{"wsgi.input": Meanwhile(DATA)}).status_code == 200
    assert refusals
    for answer in refusals:
        refused(answer, 503, "ServiceUnavailable", "1 uploads of this run and ")


class TooSlow(io.BytesIO):
    """A body whose rest does not arrive in time, although gunicorn waits for it."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if len(data) < (size or 0):
            raise TimeoutError
        return data


def test_a_body_that_comes_too_slowly_is_not_stored(queue: Queue) -> None:
    target = put_url(queue).removeprefix(ROOT_URL)
    for path in (target, f"/v1/task/{TASK_ID}"):
        answer = sent_with(queue, path, **{"wsgi.input": TooSlow(DATA[:5])})
        refused(answer, 503, "ServiceUnavailable", "too slowly")
    assert downloaded(queue).status_code == 404
