"""Links to artifacts: how far they lead, and the scopes of what they lead to."""

from itertools import pairwise
from typing import Any

import pytest

from tests.http.calls import ROOT, Queue, refused, succeeded, temporary


def links(queue: Queue, task_id: str, *names: str) -> None:
    """Each name but the last is a link to the next name."""
    for name, target in pairwise(names):
        succeeded(queue.artifact(task_id, name, "link", artifact=target))


def test_more_than_thirty_links_and_a_circle_of_links_are_refused(queue: Queue) -> None:
    task_id = queue.running()
    names = [f"public/{number}" for number in range(32)]
    links(queue, task_id, *names)
    succeeded(queue.artifact(task_id, names[-1], "reference"))
    links(queue, task_id, "a", "b", "a")

    def get(name: str) -> Any:
        return queue.call("artifact", taskId=task_id, runId=0, name=name)

    succeeded(get("public/1"))
    for name in ("public/0", "a"):
        refused(get(name), 400, "InputError", f"{name!r} leads through more than 30 links, or in a circle")


@pytest.mark.parametrize("call", ["getArtifact", "artifact"])
def test_a_public_link_does_not_open_a_private_target(queue: Queue, call: str) -> None:
    task_id = queue.running()
    links(queue, task_id, "public/a", "private/b", "private/c")
    succeeded(queue.artifact(task_id, "private/c", "reference"))
    asked: dict[str, Any] = {"taskId": task_id, "name": "public/a", "runId": 0}
    refused(queue.call(call, credentials=None, **asked), 403, "InsufficientScopes", "private/b")
    some = temporary(ROOT, ["queue:get-artifact:private/b"])
    refused(queue.call(call, credentials=some, **asked), 403, "InsufficientScopes", "private/c")
    succeeded(queue.call(call, credentials=temporary(ROOT, ["queue:get-artifact:private/*"]), **asked))
