"""Several servers on an account share tasks and workers, and each streams its own events."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import requests

from legacy_queue.local_processes.azurite import Azurite

from .accounts import as_root, on_account
from .http_queue import Queue, definition
from .processes import LONG, serve, wait_until
from .test_event_stream import following, pending


@dataclass(frozen=True)
class Replicas:
    """The queue at each of two servers."""

    queues: list[Queue]


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite) -> Iterator[Replicas]:
    env = on_account(azurite)
    with ExitStack() as stack:
        folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
        servers = [stack.enter_context(serve(folder, env=env)) for folder in folders]
        yield Replicas([as_root(server) for server in servers])


def test_servers_on_an_account_share_a_queue(replicas: Replicas, azurite: Azurite, worker_type: str) -> None:
    one, two = replicas.queues
    assert all(requests.get(f"{queue.server.root_url}/ready", timeout=LONG).ok for queue in replicas.queues)
    assert one.server.line["storage"]["queue"] == azurite.queue_url
    task_id = one.create(definition(worker_type))
    [message] = two.poll(worker_type)
    credentials = two.claim(message).json()["credentials"]
    # each server changes the task that the other has in its cache
    for queue in (one, two, one, two):
        reclaimed = queue.with_credentials(credentials).on_run((task_id, 0), "reclaim")
        assert reclaimed.status_code == 200, reclaimed.text
        credentials = reclaimed.json()["credentials"]
    assert two.claim(message, "late").status_code == 409
    assert one.with_credentials(credentials).on_run((task_id, 0), "completed").status_code == 200
    assert two.runs(task_id) == [("completed", "completed")]
    assert two.with_credentials(credentials).on_run((task_id, 0), "reclaim").status_code == 409
    assert one.pending(worker_type) == 0
    wait_until(lambda: two.pending(worker_type) == 0)

    canceled = one.create(definition(worker_type))
    two.ask("POST", f"/task/{canceled}/cancel")
    assert one.claim_by_name(canceled, 0).status_code == 409


def test_each_server_streams_its_own_events(replicas: Replicas, worker_type: str) -> None:
    one, two = replicas.queues
    with (
        following(one.server) as here,
        following(two.server) as there,
        following(two.server, pattern="route.mine") as routed,
    ):
        first, second = one.create(definition(worker_type)), two.create(definition(worker_type))
        assert (here.read(2), there.read(2)) == (pending(first), pending(second))
        mine = two.create(definition(worker_type, routes=["mine"]))
        assert routed.read(2) == pending(mine)
