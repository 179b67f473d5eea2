"""Signatures and receipts of messages: wrong, stolen and forged ones are refused."""

import base64
import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from legacy_queue.adapters.azurite import Azurite

from .accounts import as_root, on_account
from .http_queue import Queue, definition, delete, storage_access
from .processes import Server, serve

OLD_SECRET, NEW_SECRET = "the-old-secret-that-signs-messages", "the-new-secret-that-signs-messages"
REQUIRING = "requiring"  # the worker type of the shared servers whose policy is required


def put(server: Server, urls: dict[str, str], content: object) -> None:
    """Put a message with storage access."""
    with storage_access(server, urls) as client:
        client.send_message(base64.b64encode(json.dumps(content).encode()).decode())


def test_a_claim_with_a_wrong_signature_is_refused_and_changes_nothing(
    queue: Queue, worker_type: str
) -> None:
    task_id = queue.create(definition(worker_type))
    other = queue.create(definition(worker_type))
    first, second = queue.poll(worker_type, 2)
    before = queue.status(task_id)
    mine = first if first.task_id == task_id else second
    theirs = second if mine is first else first
    wrong = [theirs.content["signature"], "nonsense", mine.content["signature"][:-1]]
    for signature in wrong:
        refused = queue.claim(mine, signature=signature)
        assert refused.status_code == 403
        assert refused.json()["code"] == "AuthorizationFailed"
        for secret in (mine.receipt, mine.content["signature"]):
            assert secret not in refused.text
    assert queue.status(task_id) == before
    assert queue.pending(worker_type) == 2
    assert queue.claim(mine).status_code == 200
    assert theirs.task_id == other


def test_the_signature_of_a_run_is_refused_for_the_next_run(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(definition(worker_type))
    [message] = queue.poll(worker_type)
    holder = queue.with_credentials(queue.claim(message).json()["credentials"])
    holder.on_run((task_id, 0), "exception", {"reason": "worker-shutdown"})
    [retry] = queue.poll(worker_type)
    refused = queue.claim(retry, signature=message.content["signature"])
    assert refused.status_code == 403
    assert queue.runs(task_id)[1] == ("pending", None)
    assert queue.claim(retry).status_code == 200


def test_under_the_required_policy_a_claim_without_proof_is_refused_and_the_run_gets_a_new_message(
    queue: Queue,
) -> None:
    task_id = queue.create(definition(REQUIRING))
    urls = queue.poll_urls(REQUIRING)[-1]
    [message] = queue.poll_one(urls)
    refused = queue.claim_by_name(task_id, 0)
    assert refused.status_code == 400
    assert refused.json()["code"] == "InputError"
    for name in ("messageId", "receipt", "signature"):
        assert name in refused.json()["message"]
    assert delete(urls, message) == 204  # as a worker does after any 4xx
    assert queue.runs(task_id) == [("pending", None)]
    assert queue.pending(REQUIRING) == 1  # the new message
    assert queue.ask("POST", f"/task/{task_id}/cancel")


@pytest.mark.parametrize("left_out", ["messageId", "receipt", "signature"])
def test_under_the_required_policy_a_claim_without_a_field_is_refused(queue: Queue, left_out: str) -> None:
    task_id = queue.create(definition(REQUIRING))
    messages = queue.poll(REQUIRING, 32)
    [message] = [message for message in messages if message.task_id == task_id]
    proof = {name: value for name, value in message.proof.items() if name != left_out}
    body = {"workerGroup": "group", "workerId": "one", **proof}
    refused = queue.send("POST", f"/task/{task_id}/runs/0/claim", body)
    assert refused.status_code == 400
    assert f"lacks {left_out}" in refused.json()["message"]
    assert queue.runs(task_id) == [("pending", None)]
    assert queue.ask("POST", f"/task/{task_id}/cancel")


def test_under_the_required_policy_a_claim_of_the_draft_succeeds(queue: Queue) -> None:
    task_id = queue.create(definition(REQUIRING))
    [message] = [message for message in queue.poll(REQUIRING, 32) if message.task_id == task_id]
    claim = queue.claim(message)
    assert claim.status_code == 200
    queue.with_credentials(claim.json()["credentials"]).on_run(message.run, "completed")


def test_a_stolen_message_can_neither_be_claimed_nor_deleted(queue: Queue, worker_type: str) -> None:
    task_id = queue.create(definition(worker_type))
    urls = queue.poll_urls(worker_type)[-1]
    [stolen] = queue.poll_one(urls)
    holder = queue.with_credentials(queue.claim(stolen, "owner").json()["credentials"])

    assert delete(urls, stolen) in (400, 404)
    assert queue.claim(stolen, "thief").status_code == 409
    # it is the message of the next run by now; the thief does not know its signature
    assert queue.claim(stolen, "thief", signature="A" * 44).status_code == 403
    as_next = {"workerGroup": "group", "workerId": "thief", **stolen.proof}
    answer = queue.send("POST", f"/task/{task_id}/runs/1/claim", as_next)
    assert answer.status_code == 403

    assert queue.pending(worker_type) == 0
    assert queue.poll(worker_type) == []
    assert holder.on_run((task_id, 0), "reclaim").status_code == 200
    assert holder.on_run((task_id, 0), "completed").status_code == 200
    assert queue.pending(worker_type) == 0


def test_a_message_forged_with_storage_access_claims_nothing(
    azurite_server: Server, worker_type: str
) -> None:
    queue = Queue(azurite_server)
    urls = queue.poll_urls(worker_type)
    task_id = queue.create(definition(worker_type))
    [genuine] = queue.poll(worker_type)
    before = queue.status(task_id)
    for run_id in (0, 1):
        forged = {"taskId": task_id, "runId": run_id, "signature": base64.b64encode(b"f" * 32).decode()}
        put(azurite_server, urls[0], forged)
        [message] = queue.poll(worker_type)
        assert message.run == (task_id, run_id)
        assert queue.claim(message, "forger").status_code == 403
        assert queue.status(task_id) == before
        assert delete(urls[0], message) == 204
    assert queue.claim(genuine).status_code == 200


def test_a_forged_message_cannot_claim_a_task_of_another_worker_type(
    azurite_server: Server, worker_type: str
) -> None:
    """The claim needs the scopes of the task's own worker type, whatever queue holds the message."""
    queue = Queue(azurite_server)
    task_id = queue.create(definition(worker_type))
    urls = queue.poll_urls("of-the-forger")
    forged = {"taskId": task_id, "runId": 0, "signature": base64.b64encode(b"f" * 32).decode()}
    put(azurite_server, urls[0], forged)
    [message] = queue.poll("of-the-forger")
    assert queue.claim(message).status_code == 403
    assert queue.runs(task_id) == [("pending", None)]


def test_messages_are_valid_while_the_secret_that_signed_them_is_listed(
    tmp_path: Path, azurite: Azurite, worker_type: str
) -> None:
    env = on_account(azurite)

    def server(folder: str, *secrets: str) -> AbstractContextManager[Server]:
        return serve(tmp_path / folder, env={**env, "LEGACY_QUEUE_SIGNING_SECRETS": ",".join(secrets)})

    with server("before", OLD_SECRET) as first:
        queue = as_root(first)
        running, waiting, abandoned = (queue.create(definition(worker_type)) for _ in range(3))
        messages = {message.task_id: message for message in queue.poll(worker_type, 2)}
        credentials = queue.claim(messages[running]).json()["credentials"]
        first.secrets.add(OLD_SECRET)

    with server("rotated", NEW_SECRET, OLD_SECRET) as second:
        second.secrets.update((OLD_SECRET, NEW_SECRET))
        queue = as_root(second)
        assert queue.claim(messages[waiting]).status_code == 200  # polled before
        assert queue.with_credentials(credentials).on_run((running, 0), "reclaim").status_code == 200
        [old] = queue.poll(worker_type)
        assert old.task_id == abandoned
        fresh = queue.create(definition(worker_type))
        [newer] = queue.poll(worker_type)
        assert newer.task_id == fresh

    with server("ended", NEW_SECRET) as third:
        third.secrets.update((OLD_SECRET, NEW_SECRET))
        queue = as_root(third)
        assert queue.claim(old).status_code == 403  # the old secret is not listed
        assert queue.runs(abandoned) == [("pending", None)]
        assert queue.claim(newer).status_code == 200
