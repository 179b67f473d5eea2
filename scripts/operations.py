"""Storage operations of each call, counted where they leave the process; run by scripts/operations.

"cold" is a call of a process that has not seen the task before: another replica's, or after a restart.
"The same" remembers the task from before the other replica changed it: the write finds out.
"""

import base64
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from lxml import etree

from legacy_queue.adapters.azure import AzureStorage
from legacy_queue.adapters.azurite import Azurite
from legacy_queue.config import Settings, complete
from legacy_queue.domain.hawk import sign_header
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.wiring import build

WORKER = {"workerGroup": "group", "workerId": "worker"}


class Replica:
    """A server of its own on the shared storage, called without a network between."""

    def __init__(self, settings: Settings) -> None:
        server = build(settings, "http://localhost")
        assert isinstance(server.storage, AzureStorage)
        self.counts = server.storage.operations
        server.storage.check()
        self._client, self._credentials = server.app.test_client(), settings.clients[0]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the answer, which must be 200."""
        data = b"" if body is None else json.dumps(body).encode()
        authorization = sign_header(
            client_id=self._credentials.client_id,
            access_token=self._credentials.access_token,
            method=method,
            target=path,
            host="localhost",
            port=80,
            now=datetime.now(UTC),
            nonce=slugid(),
        )
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        answer = self._client.open(path, method=method, data=data, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json


def definition(task_group_id: str) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "provisionerId": "prov",
        "workerType": "type",
        "taskGroupId": task_group_id,
        "created": format_time(now),
        "deadline": format_time(now + timedelta(hours=2)),
        "payload": {},
        "metadata": {
            "name": "n",
            "description": "d",
            "owner": "o@example.com",
            "source": "https://example.com",
        },
    }


def polled(urls: Any) -> dict[str, Any]:
    """What a claim presents of the next message."""
    for queue in urls["queues"]:
        for message in etree.fromstring(requests.get(queue["signedPollUrl"], timeout=10).content):
            fields = {one.tag: one.text for one in message}
            signature = json.loads(base64.b64decode(fields["MessageText"]))["signature"]
            return {"messageId": fields["MessageId"], "receipt": fields["PopReceipt"], "signature": signature}
    raise LookupError("no message")


@contextmanager
def azurite_settings() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory() as folder:
        settings = complete(Settings(data_dir=Path(folder)))
        with Azurite(Path(folder) / "azurite", settings.azurite_dir) as azurite:
            yield replace(settings, storage="azure", connection_string=azurite.connection_string)


def main() -> None:
    with azurite_settings() as settings:
        one, other = Replica(settings), Replica(settings)

        def count(what: str, budget: str, replica: Replica, act: Callable[[], Any]) -> Any:
            before = replica.counts.copy()
            answer = act()
            by_service = replica.counts - before
            shown = ", ".join(
                f"{service} {method} {n}" for (service, method), n in sorted(by_service.items())
            )
            print(f"{what:<46} {by_service.total():>2}   {budget:<10} {shown}")
            return answer

        print(f"{'call':<46} {'operations':>2}  budget")
        group, task, cold = slugid(), slugid(), slugid()
        path = f"/v1/task/{task}"
        urls = count(
            "pollTaskUrls, first of a worker type",
            "-",
            one,
            lambda: one.call("GET", "/v1/poll-task-url/prov/type"),
        )
        count("pollTaskUrls, again", "-", one, lambda: one.call("GET", "/v1/poll-task-url/prov/type"))
        count("createTask, new group", "3 + timer", one, lambda: one.call("PUT", path, definition(group)))
        count(
            "createTask, same group",
            "3 + timer",
            one,
            lambda: one.call("PUT", f"/v1/task/{cold}", definition(group)),
        )
        count("status", "-", one, lambda: one.call("GET", f"{path}/status"))
        run = f"{path}/runs/0"
        message = polled(urls)
        count(
            "claimTask (draft)",
            "2 + timer",
            one,
            lambda: one.call("POST", f"{run}/claim", {**WORKER, **message}),
        )
        count(
            "claimTask again, same worker",
            "-",
            one,
            lambda: one.call("POST", f"{run}/claim", {**WORKER, **message}),
        )
        count("reclaimTask", "2", one, lambda: one.call("POST", f"{run}/reclaim"))
        count("reportCompleted", "2 + resolved", one, lambda: one.call("POST", f"{run}/completed"))
        run = f"/v1/task/{cold}/runs/0"
        count(
            "claimTask (deployed), cold",
            "3 + timer",
            other,
            lambda: other.call("POST", f"{run}/claim", WORKER),
        )
        count(
            "reclaimTask, remembered from before the claim",
            "3",
            one,
            lambda: one.call("POST", f"{run}/reclaim"),
        )
        report = {"reason": "worker-shutdown"}
        count(
            "reportException with a retry, cold",
            "3",
            other,
            lambda: other.call("POST", f"{run}/exception", report),
        )
        count("cancelTask, the same", "-", one, lambda: one.call("POST", f"/v1/task/{cold}/cancel"))
        count("pendingTasks", "-", one, lambda: one.call("GET", "/v1/pending/prov/type"))


if __name__ == "__main__":
    main()
