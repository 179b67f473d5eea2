"""``serve --no-resolvers``, and ``legacy-queue resolve`` as processes beside it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from legacy_queue.adapters.azurite import Azurite

from .accounts import as_root, on_account
from .http_queue import Queue, definition, slugid
from .processes import SHORT_CLAIM, importing, resolve, run, serve, wait_until

TYPE = "resolved"
SPLIT = ("--no-resolvers", "--claim-timeout", f"{SHORT_CLAIM}s")
EXPIRED = [("exception", "claim-expired"), ("pending", None)]


def completed_with_dependent(queue: Queue) -> str:
    """A task that waits for one that has completed."""
    task_id, dependent = queue.create(definition(TYPE)), slugid()
    queue.ask("PUT", f"/task/{dependent}", definition(TYPE, dependencies=[task_id]))
    claim = queue.claim_by_name(task_id, 0).json()
    holder = queue.with_credentials(claim["credentials"])
    assert holder.on_run((task_id, 0), "completed").status_code == 200
    return dependent


def claimed(queue: Queue) -> str:
    task_id = queue.create(definition(TYPE))
    assert queue.claim_by_name(task_id, 0).status_code == 200
    return task_id


def test_two_resolvers_do_for_two_servers_what_those_leave_undone(tmp_path: Path, azurite: Azurite) -> None:
    env = on_account(azurite)
    with (
        serve(tmp_path / "server-1", *SPLIT, env=env) as first,
        serve(tmp_path / "server-2", *SPLIT, env=env) as second,
    ):
        queues = [as_root(first), as_root(second)]
        dependents = [completed_with_dependent(queue) for queue in queues]
        tasks = [claimed(queue) for queue in queues * 5]
        for task_id in dependents:  # this a server sees to itself
            wait_until(lambda one=task_id: queues[0].status(one)["state"] == "pending")
        for task_id in tasks:
            until = datetime.fromisoformat(queues[0].status(task_id)["runs"][0]["takenUntil"])
            wait_until(lambda until=until: until < datetime.now(UTC))
            assert queues[0].status(task_id)["state"] == "running"
        with resolve(tmp_path / "resolver-1", env=env), resolve(tmp_path / "resolver-2", env=env) as resolver:
            for task_id in tasks:
                wait_until(lambda one=task_id: queues[1].runs(one) == EXPIRED)
                assert queues[0].status(task_id)["retriesLeft"] == 4
            assert f'"pid": {resolver.process.pid}' in resolver.output
            assert resolver.output.count("\n") == 1


def test_it_resolves_on_the_azurite_of_a_server_in_the_same_data_directory(tmp_path: Path) -> None:
    with serve(tmp_path / "server", *SPLIT) as server:
        queue, where = Queue(server), ("--data-dir", str(server.data_dir))
        dependent, task_id = completed_with_dependent(queue), claimed(queue)
        with resolve(tmp_path / "resolver", *where):
            wait_until(lambda: queue.status(dependent)["state"] == "pending")
            wait_until(lambda: queue.runs(task_id) == EXPIRED)
        assert server.end() == 0
        # it waits for a server that is to come back, and can be told not to
        with importing("legacy_queue.wiring", 0, tmp_path / "waiting", "resolve", *where) as waiting:
            assert waiting.end() == 0
            assert waiting.output == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--storage", "memory"), "memory storage lives in the server's own process"),
        ((), "no Azurite was ever started over"),
        (("--storage", "azure"), "LEGACY_QUEUE_CONNECTION_STRING"),
    ],
)
def test_where_there_is_nothing_to_resolve_it_says_so_in_one_sentence(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    with run(tmp_path, "resolve", "--data-dir", str(tmp_path / "data"), *options) as refused:
        assert refused.wait() in (1, 2)
    assert refused.output == ""
    [sentence] = [line for line in refused.errors.splitlines() if line]
    assert sentence.startswith("Error: ")
    assert said in sentence
