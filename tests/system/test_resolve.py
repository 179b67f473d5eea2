"""``serve --no-resolvers``, and ``legacy-queue resolve`` as processes beside it."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import pytest

from .http_queue import Queue
from .processes import importing, leaks, run, serve, wait_until

pytestmark = pytest.mark.processes

SPLIT = ("--no-resolvers", "--claim-timeout", "6s")
EXPIRED = [("exception", "claim-expired"), ("pending", None)]


def test_two_resolvers_expire_each_claim_of_a_server_without_resolvers_once(tmp_path: Path) -> None:
    with serve(tmp_path / "server", *SPLIT) as server:
        queue, where = Queue(server), ("--data-dir", str(server.data_dir))
        first, *tasks = (queue.running() for _ in range(10))
        dependent = queue.create(dependencies=[first])
        queue.ask("reportCompleted", taskId=first, runId=0)
        wait_until(lambda: queue.state(dependent) == "pending")  # the server does this itself
        last = datetime.fromisoformat(queue.status(tasks[-1])["runs"][0]["takenUntil"])
        wait_until(lambda: datetime.now(UTC) > last)
        assert {queue.state(task_id) for task_id in tasks} == {"running"}
        words = ("resolve", *where)
        with run(tmp_path / "one", *words) as other, run(tmp_path / "two", *words) as resolver:
            line = json.loads(resolver.lines(1)[0])
            wait_until(lambda: all(queue.runs(task_id) == EXPIRED for task_id in tasks))
            assert {queue.status(task_id)["retriesLeft"] for task_id in tasks} == {4}
            assert line["pid"] == resolver.process.pid
            with urlopen(f"http://127.0.0.1:{line['port']}/ready") as ready:
                assert json.load(ready) == {"ready": True}
            with urlopen(f"http://127.0.0.1:{line['port']}/metrics") as metrics:
                assert b"legacy_queue_late_timers" in metrics.read()
            taken = ("--resolver-port", str(line["port"]))
            with run(tmp_path / "three", "resolve", *where, *taken) as refused:
                assert refused.wait() == 1
            assert f"cannot listen on 127.0.0.1 port {line['port']}" in refused.errors
            assert [each.end() for each in (other, resolver)] == [0, 0]
            assert [leaks(each.errors, server.secrets) for each in (other, resolver)] == [[], []]
        assert server.end() == 0
        # without a server it waits, and can be stopped
        with importing("legacy_queue.wiring", 0, tmp_path / "waiting", "resolve", *where) as waiting:
            assert waiting.end() == 0
            assert waiting.output == ""


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("resolve --storage memory", "memory storage lives in the server's own process"),
        ("resolve --storage azurite", "no Azurite over "),
        ("resolve", "start `legacy-queue serve` with this --data-dir first"),
        ("serve --storage azurite --azurite-dir nowhere", "There is no .*nowhere/node_modules"),
        ("serve --storage azure --connection-string no=string --control", "connection string cannot be used"),
    ],
)
def test_a_start_without_its_storage_is_refused_in_one_sentence_and_writes_nothing(
    tmp_path: Path, command: str, reason: str
) -> None:
    with run(tmp_path, *command.split(), "--port=0", "--data-dir=data") as refused:
        assert refused.wait() in (1, 2)
    assert refused.output == ""
    assert re.fullmatch(f"Error: .*{reason}.*\n", refused.errors)
    assert not (tmp_path / "data").exists()
