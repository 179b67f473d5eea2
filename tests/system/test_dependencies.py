"""Tasks that wait for others: two processes on one queue, and a consumer of the events.

A hundred dependencies are in test_half_a_minute.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from legacy_queue.adapters.azurite import Azurite
from tests.rabbitmq import RabbitMQ

from .accounts import as_root, on_account
from .http_queue import Queue, definition, slugid
from .listeners import Listener, listening
from .processes import serve, wait_until

TYPE = "waiting"
RUN = ["defined", "pending 0", "running 0 one", "completed 0 one", "group-resolved"]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite, rabbitmq: RabbitMQ) -> Iterator[Queue]:
    env = on_account(azurite, rabbitmq.url)
    with serve(tmp_path_factory.mktemp("waiting"), "--workers", "2", env=env) as server:
        yield as_root(server)


@pytest.fixture(scope="module")
def listener(queue: Queue, rabbitmq: RabbitMQ) -> Iterator[Listener]:
    with listening(rabbitmq.url, queue.server.root_url) as listener:
        yield listener


def create(queue: Queue, *dependencies: str, **changes: Any) -> str:
    task_id = slugid()
    task = definition(TYPE, dependencies=list(dependencies), **changes)
    queue.ask("PUT", f"/task/{task_id}", task)
    return task_id


def complete(queue: Queue, task_id: str) -> None:
    claim = queue.claim_by_name(task_id, 0)
    assert claim.status_code == 200, claim.text
    holder = queue.with_credentials(claim.json()["credentials"])
    assert holder.on_run((task_id, 0), "completed").status_code == 200


def states(queue: Queue, *task_ids: str) -> list[str]:
    return [queue.status(task_id)["state"] for task_id in task_ids]


def test_a_task_is_pending_after_all_its_dependencies_completed(queue: Queue, listener: Listener) -> None:
    group_id = slugid()
    top = create(queue, taskGroupId=group_id)
    left, right = create(queue, top, taskGroupId=group_id), create(queue, top, taskGroupId=group_id)
    bottom = create(queue, left, right, taskGroupId=group_id)
    names = {top: "top", left: "left", right: "right", bottom: "bottom", group_id: "all"}
    assert states(queue, top, left, right, bottom) == ["pending", *["unscheduled"] * 3]

    complete(queue, top)
    wait_until(lambda: states(queue, left, right) == ["pending"] * 2)
    complete(queue, left)
    listener.wait_for({left: RUN[:4]})
    assert states(queue, bottom) == ["unscheduled"]
    complete(queue, right)
    wait_until(lambda: states(queue, bottom) == ["pending"])
    complete(queue, bottom)

    listener.wait_for({**dict.fromkeys((top, left, right, bottom), RUN[:4]), group_id: ["group-resolved"]})
    story = [f"{names[event.about]} {event}" for event in listener.all if event.about in names]
    assert story.index("top completed 0 one") < story.index("left pending 0")
    assert story.index("top completed 0 one") < story.index("right pending 0")
    assert story.index("right completed 0 one") < story.index("bottom pending 0")
    assert story[-1] == "all group-resolved"


def test_after_a_failed_dependency_a_task_waits_unless_it_requires_all_resolved(
    queue: Queue, listener: Listener
) -> None:
    failed, other = create(queue), create(queue)
    any_end = create(queue, failed, requires="all-resolved")
    both = create(queue, failed, other, requires="all-resolved")
    completed = create(queue, failed, other)
    queue.ask("POST", f"/task/{failed}/cancel")
    listener.wait_for({any_end: ["defined", "pending 0"]})
    complete(queue, other)
    listener.wait_for({both: ["defined", "pending 0"], other: RUN})
    assert states(queue, completed) == ["unscheduled"]

    queue.ask("POST", f"/task/{failed}/rerun")
    claim = queue.claim_by_name(failed, 1).json()
    assert queue.with_credentials(claim["credentials"]).on_run((failed, 1), "completed").status_code == 200
    listener.wait_for({completed: ["defined", "pending 0"]})


def test_a_defined_task_waits_until_it_is_scheduled(queue: Queue, listener: Listener) -> None:
    other = create(queue)
    task_id = slugid()
    queue.ask("POST", f"/task/{task_id}/define", definition(TYPE, dependencies=[other]))
    complete(queue, other)
    listener.wait_for({other: RUN})
    assert states(queue, task_id) == ["unscheduled"]
    queue.ask("POST", f"/task/{task_id}/schedule")
    listener.wait_for({task_id: ["defined", "pending 0"]})
