"""Temporary credentials: those of a claim, and those that a real client makes itself."""

import pytest

from .http_queue import Queue, definition
from .real_clients import RealClient, refusal

# does not depend on the storage
pytestmark = pytest.mark.parametrize("server", ["memory"], indirect=True)

WORKER = {"workerGroup": "group", "workerId": "one"}
INSUFFICIENT = 403, "InsufficientScopes"


def test_a_worker_claims_work_with_credentials_that_a_client_made(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    scopes = [f"queue:claim-work:system/{worker_type}", "queue:worker-id:group/*"]
    for name in (None, "worker/one"):
        made = client.temporary(scopes, name=name)
        queue.with_credentials(made)
        task_id = queue.create(definition(worker_type))
        wanted = {**WORKER, "tasks": 32}
        [claim] = client.call("claimWork", "system", worker_type, wanted, credentials=made)["tasks"]
        queue.with_credentials(claim["credentials"])
        assert claim["status"]["taskId"] == task_id
        elsewhere = "system", "elsewhere", wanted
        assert refusal(client.call, "claimWork", *elsewhere, credentials=made) == INSUFFICIENT
        assert refusal(client.call, "reportCompleted", task_id, "0", credentials=made) == INSUFFICIENT
        client.call("reportCompleted", task_id, "0", credentials=claim["credentials"])
