"""Work messages. The expected signatures were made by openssl:

printf '<taskId>/<runId>' | openssl dgst -sha256 -hmac SECRET -binary | base64
"""

import base64
import json
import traceback
from typing import Any

import pytest

from legacy_queue.domain.messages import MessageLease, message_text, read_message, signature_is_valid
from tests.domain.sample_tasks import TASK_ID

SECRET, OLD_SECRET = b"the-first-secret-signs", b"an-older-one-verifies"
SIGNATURES = {
    0: "aqdrk8GNmi2tehZfnRyl2DBmQkIasBKAuPqFlomDAO4=",
    1: "+6ugCxxSRa1Pkrpvtr3ljKIjEFZR1WAfsMVjmz3ooEE=",
    49: "ufzZ1xgK/+XIVcFJtHyl+ebO+ir+jlfqDqaf5gIH8Sk=",
}
BY_OLD_SECRET = "e6UMvMmq9JF4SWOMbkgTD7yTfI/gcqJqyr9DJc556tg="
BY_ANOTHER_SECRET = "q5WW6nJiGv0XGiKEiJLhzvPYbJoj8is+BXAjqqKsxIw="


def test_only_a_signature_by_one_of_the_servers_secrets_is_valid() -> None:
    for right in (SIGNATURES[0], BY_OLD_SECRET):
        assert signature_is_valid(right, TASK_ID, 0, [SECRET, OLD_SECRET])
    assert not signature_is_valid(BY_OLD_SECRET, TASK_ID, 0, [SECRET])
    for wrong in ("", BY_ANOTHER_SECRET, SIGNATURES[1], SIGNATURES[0][:-1], "é" * 44):
        assert not signature_is_valid(wrong, TASK_ID, 0, [SECRET, OLD_SECRET])


def test_a_message_is_base64_of_json_whose_run_id_is_a_number() -> None:
    text = json.loads(base64.b64decode(message_text(TASK_ID, 1, SECRET), validate=True))
    assert text == {"taskId": TASK_ID, "runId": 1, "signature": SIGNATURES[1]}
    assert read_message(wire(more=["of", "it"])) == (TASK_ID, 1, SIGNATURES[1])
    for run_id, signature in SIGNATURES.items():
        assert read_message(message_text(TASK_ID, run_id, SECRET)) == (TASK_ID, run_id, signature)


def encoded(json_text: str) -> str:
    return base64.b64encode(json_text.encode()).decode()


def wire(**changes: Any) -> str:
    """A message in which these values are changed."""
    return encoded(json.dumps({"taskId": TASK_ID, "runId": 1, "signature": SIGNATURES[1], **changes}))


NO_MESSAGES = {
    "empty": "",
    "no base64": "no base64!",
    "a lone surrogate": "\ud800" * 4,
    "no JSON": encoded(SIGNATURES[1]),
    "nested too deep": encoded("[" * 100_000),
    "a number too long": encoded(f'{{"runId": {"9" * 5000}}}'),
    "a list": encoded("[]"),
    "without taskId": encoded(f'{{"runId": 1, "signature": "{SIGNATURES[1]}"}}'),
    "a taskId that is a list": wire(taskId=[TASK_ID]),
    "a taskId that is no slugid": wire(taskId="a/b"),
    "a negative runId": wire(runId=-1),
    "a runId that is a text": wire(runId="1"),
    "a runId that is true": wire(runId=True),
    "a runId with a fraction": wire(runId=1.0),
    "a signature that is an object": wire(signature={}),
}


@pytest.mark.parametrize("text", NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_any_other_text_is_not_a_work_message(text: str) -> None:
    with pytest.raises(ValueError, match="not a work message") as error:
        read_message(text)
    assert type(error.value) is ValueError
    assert SIGNATURES[1] not in "".join(traceback.format_exception(error.value))


def test_the_repr_of_a_lease_does_not_show_the_receipt() -> None:
    assert "the-receipt" not in repr(MessageLease("message", "the-receipt"))
