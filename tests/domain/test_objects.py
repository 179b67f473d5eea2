"""Objects: their names, their credentials, and how an upload is checked and finished."""

import json
from dataclasses import replace
from typing import Any

import pytest

from legacy_queue.domain.artifact import requested_artifact
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.errors import InputError, NoMatchingMethod, RequestConflict
from legacy_queue.domain.object_access import (
    check_upload,
    download_access,
    download_method,
    finished,
    upload_access,
)
from legacy_queue.domain.times import epoch_milliseconds, format_time
from tests.domain.sample_tasks import DAY, HOUR, MINUTE, NOW, TASK_ID, running

ISSUER = Client("issuer", "the-access-token-of-the-issuer", ("*",))
ARTIFACT: Any = requested_artifact(
    running(projectId="a/project", expires=format_time(NOW + 3 * DAY)),
    0,
    "public/a//b c",
    {"storageType": "object", "contentType": "text/plain", "expires": format_time(NOW + 2 * DAY)},
    NOW,
)
NAME = f"t/{TASK_ID}/0/public/a//b c"
UPLOAD = {"projectId": "a/project", "uploadId": ARTIFACT.upload_id}
HASHES = {"sha256": "ab" * 32, "sha512": "cd" * 64}


def test_upload_credentials_are_for_one_object_and_last_at_most_a_day() -> None:
    for expires, life in ((NOW + 2 * DAY, DAY), (NOW + HOUR, HOUR)):
        answer = upload_access(replace(ARTIFACT, expires=expires), ISSUER, NOW, expires)
        certificate = json.loads(answer.pop("credentials")["certificate"])
        assert certificate["scopes"] == [f"object:upload:a/project:{NAME}"]
        assert certificate["expiry"] == epoch_milliseconds(NOW + life)
        assert certificate["start"] == epoch_milliseconds(NOW - 15 * MINUTE)
        assert answer == {"storageType": "object", "name": NAME, "expires": format_time(expires), **UPLOAD}


def test_download_credentials_are_for_one_object_and_last_an_hour() -> None:
    answer = download_access(ARTIFACT, ISSUER, NOW)
    certificate = json.loads(answer["credentials"]["certificate"])
    assert certificate["scopes"] == [f"object:download:{NAME}"]
    assert certificate["expiry"] == epoch_milliseconds(NOW + HOUR)
    assert answer.keys() == {"storageType", "name", "credentials"}
    assert answer["credentials"]["clientId"] == f"artifact-download/{TASK_ID}/0"


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"projectId": "other"}, InputError, "projectId is 'other': expected 'a/project'"),
        ({"uploadId": "x"}, RequestConflict, "another uploadId"),
        ({"expires": format_time(NOW + DAY)}, RequestConflict, "expires at 2030-01-04T03:04:05.678Z, not"),
        ({"expires": "2030-02-30T00:00:00Z"}, InputError, "out of range"),
    ],
)
def test_an_upload_whose_fields_differ_from_its_object_is_refused(
    changes: dict[str, str], kind: type[Exception], message: str
) -> None:
    check_upload(ARTIFACT, {**UPLOAD, "expires": (NOW + 2 * DAY).isoformat()})
    with pytest.raises(kind, match=message) as refused:
        check_upload(ARTIFACT, {**UPLOAD, **changes})
    assert UPLOAD["uploadId"] not in str(refused.value)


def test_an_upload_is_finished_with_the_hashes_of_known_algorithms() -> None:
    done = finished(ARTIFACT, {**HASHES, "sha3": "ef"})
    assert done == replace(ARTIFACT, hashes=HASHES)
    for repeated in (HASHES, {}, {"sha256": HASHES["sha256"], "sha3": "01"}):
        assert finished(done, repeated) == done
    for first in ({"sha256": "0" * 64}, {}):
        with pytest.raises(RequestConflict, match="finished already"):
            finished(finished(ARTIFACT, first), HASHES)


def test_a_download_uses_the_best_method_that_the_client_accepts() -> None:
    assert download_method({"simple": True}) == "simple"
    assert download_method({"simple": True, "getUrl": True}) == "getUrl"
    with pytest.raises(NoMatchingMethod, match="getUrl or simple"):
        download_method({})
