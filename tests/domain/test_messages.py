"""Expected signatures: printf '<taskId>/<runId>' | openssl dgst -sha256 -hmac SECRET -binary | base64"""

import base64
import json

import pytest

from legacy_queue.domain.messages import Lease, message_signature, message_text, signature_is_valid

TASK_ID = "dSlITZ4yQgmvxxAi4A8fHQ"
SECRET, OLD_SECRET = b"the-first-secret-signs", b"an-older-one-verifies"
SIGNATURES = {
    0: "aqdrk8GNmi2tehZfnRyl2DBmQkIasBKAuPqFlomDAO4=",
    1: "+6ugCxxSRa1Pkrpvtr3ljKIjEFZR1WAfsMVjmz3ooEE=",
    49: "ufzZ1xgK/+XIVcFJtHyl+ebO+ir+jlfqDqaf5gIH8Sk=",
}
BY_OLD_SECRET = "e6UMvMmq9JF4SWOMbkgTD7yTfI/gcqJqyr9DJc556tg="
BY_A_STRANGER = "q5WW6nJiGv0XGiKEiJLhzvPYbJoj8is+BXAjqqKsxIw="


@pytest.mark.parametrize(("run_id", "signature"), SIGNATURES.items())
def test_a_signature_is_the_hmac_that_openssl_makes(run_id: int, signature: str) -> None:
    assert message_signature(TASK_ID, run_id, SECRET) == signature


def test_a_rotated_secret_still_verifies_while_it_is_listed() -> None:
    assert signature_is_valid(BY_OLD_SECRET, TASK_ID, 0, [SECRET, OLD_SECRET])
    assert signature_is_valid(SIGNATURES[0], TASK_ID, 0, [SECRET, OLD_SECRET])
    assert not signature_is_valid(BY_OLD_SECRET, TASK_ID, 0, [SECRET])


@pytest.mark.parametrize(
    "signature", ["", BY_A_STRANGER, SIGNATURES[1], SIGNATURES[0][:-1], SIGNATURES[0].lower(), "é" * 44]
)
def test_any_other_signature_is_not_valid(signature: str) -> None:
    assert not signature_is_valid(signature, TASK_ID, 0, [SECRET, OLD_SECRET])


def test_a_message_is_base64_of_json_with_a_number_for_its_run() -> None:
    text = json.loads(base64.b64decode(message_text(TASK_ID, 1, SECRET), validate=True))
    assert text == {"taskId": TASK_ID, "runId": 1, "signature": SIGNATURES[1]}


def test_a_receipt_is_in_no_log() -> None:
    assert "the-receipt" not in repr(Lease("message", "the-receipt"))
