"""What becomes of messages, claims and secrets; ``conform`` judges the sample worker by the protocols."""

import re
import threading

import pytest

from legacy_queue.worker import Protocol, Step

from .conftest import Prepare
from .scripted_queue import ROOT, Script, ScriptedQueue

DRAFT, DEPLOYED, CLAIMWORK = Protocol.DRAFT, Protocol.DEPLOYED, Protocol.CLAIMWORK
OF_AZURE = pytest.mark.parametrize("protocol", [DRAFT, DEPLOYED])
DONE = {"command": ["true"]}


@OF_AZURE
@pytest.mark.parametrize("text", [None, "bm9uc2Vuc2U="])
def test_only_a_deployed_worker_deletes_what_it_cannot_claim_and_both_claim_the_next(
    queue: ScriptedQueue, work: Prepare, protocol: Protocol, text: str | None
) -> None:
    if text:
        queue.message(text)
    else:
        queue.task(DONE)
        queue.script("claimTask", 409)
    queue.task(DONE)
    session = work(protocol=protocol)
    assert queue.operations().count("delete") == (2 if protocol is DEPLOYED else 0)
    assert len(queue.messages()) == (0 if protocol is DEPLOYED else 1)
    said = "the message names no task" if text else "claimTask: 409 Scripted: says 409"
    assert session.failures() == [said]


@OF_AZURE
@pytest.mark.parametrize("answers", [[503] * 6, [b"{}"], [b"[" * 100_000]])
def test_the_message_of_an_unanswered_claim_is_not_deleted(
    queue: ScriptedQueue, work: Prepare, protocol: Protocol, answers: list[Script]
) -> None:
    queue.task(DONE)
    queue.script("claimTask", *answers)
    queue.script("poll", 200, lambda: queue.task(DONE))
    session = work(protocol=protocol)
    assert len(queue.messages()) == 1
    assert len(session.failures()) == 1


def test_a_worker_that_stops_does_not_claim_the_retry_of_its_own_task(
    queue: ScriptedQueue, prepare: Prepare
) -> None:
    queue.task({"command": ["sleep", "1000"]}, retries=5)
    session = prepare(protocol=CLAIMWORK, capacity=2, max_tasks=2)
    reported = threading.Event()
    is_early = list[bool]()

    def stop_before_the_answer() -> None:
        session.wait_for(Step.RUN)
        session.worker.stop()
        session.wait_for(Step.FAILURE)  # the command was killed
        is_early.append(reported.wait(0.2))

    queue.script("claimWork", 200, stop_before_the_answer)
    queue.script("reportException", reported.set)
    session.run()
    assert queue.protocol() == ["claimWork", "claimWork", "reportException"]
    assert is_early == [False]


@OF_AZURE
def test_no_step_contains_a_secret(queue: ScriptedQueue, work: Prepare, protocol: Protocol) -> None:
    queue.task(DONE)
    queue.task({"command": "exit 1", "env": {"KEY": "s3cret-env"}})
    queue.script("poll", 403, 500, 200)
    queue.script("claimTask", 409)
    queue.script("delete", 400)
    queue.script("upload", 403)
    queue.script("reportFailed", 409)
    steps = repr(work(protocol=protocol).steps)
    answers = b"".join(queue.answers).decode()
    names = 'PopReceipt>([^<]+)|MessageText>([^<]+)|sig(?:nature)?=([^&"]+)|accessToken":\\s*"([^"]+)'
    secrets = {secret for found in re.findall(names, answers) for secret in found if secret}
    assert len(secrets) > 10
    assert [secret for secret in (*secrets, "s3cret", "sig=", ROOT.access_token) if secret in steps] == []
