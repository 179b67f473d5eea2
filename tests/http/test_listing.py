"""listTaskGroup and listDependentTasks: the whole list, page by page, and with invalid tokens."""

import base64
import hashlib
import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.http.calls import GROUP_ID, NOW, ROOT, ROOT_URL, TASK_ID, Queue, hawk, refused, succeeded

OTHER_ID = "OtherAAAQ3GP5tDKTRPnTA"
GROUP, DEPENDENTS = f"/task-group/{GROUP_ID}/list", f"/task/{TASK_ID}/dependents"
LISTS = {"listTaskGroup": GROUP, "listDependentTasks": DEPENDENTS}
each_list = pytest.mark.parametrize("name", LISTS)


def fill(queue: Queue, count: int) -> list[str]:
    """Create this many tasks in the group that depend on TASK_ID.

    Returns their ids in the order of the list.
    """
    queue.create(TASK_ID)
    return sorted(queue.create(taskGroupId=GROUP_ID, dependencies=[TASK_ID]) for _ in range(count))


def get(queue: Queue, name: str, query: str = "") -> Any:
    return succeeded(queue.send("GET", f"/v1{LISTS[name]}{query}")).get_json()


def ids(page: Any) -> list[str]:
    return [entry["status"]["taskId"] for entry in page["tasks"]]


def pages(queue: Queue, name: str, limit: int) -> Iterator[list[str]]:
    query = f"?limit={limit}"
    while query:
        page = get(queue, name, query)
        yield ids(page)
        further = page.get("continuationToken")
        query = f"?continuationToken={further}&limit={limit}" if further else ""


@each_list
def test_the_pages_together_have_each_task_once_and_no_page_exceeds_the_limit(
    queue: Queue, name: str
) -> None:
    made = fill(queue, 6)
    for limit in (1, 2, 5, 6, 7):
        seen = list(pages(queue, name, limit))
        assert sorted(chain(*seen)) == made
        assert [len(page) for page in seen] == [limit] * (6 // limit) + [6 % limit] * bool(6 % limit)


@pytest.mark.parametrize(
    "limit", ["0", "-1", "1001", "10000", "01", "1.0", "1e2", "+1", "%20", "", "all", "%D9%A1", "1%0A", "%00"]
)
def test_an_invalid_limit_is_refused(queue: Queue, limit: str) -> None:
    answer = queue.send("GET", f"/v1{GROUP}?limit={limit}", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "limit is", "1000")


def token(queue: Queue, name: str) -> str:
    return str(get(queue, name, "?limit=1")["continuationToken"])


def refuses(queue: Queue, target: str, text: str) -> None:
    answer = queue.send("GET", f"/v1{target}?continuationToken={text}", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "continuationToken is")


def test_a_changed_continuation_token_is_refused(queue: Queue) -> None:
    fill(queue, 2)
    good = token(queue, "listTaskGroup")
    spoiled = {good[:length] for length in range(1, len(good))}
    spoiled |= {good + more for more in ("A", "AA", "AAAA", "=", "%3D", "%0A", good)}
    for place, letter in enumerate(good):
        spoiled |= {f"{good[:place]}{other}{good[place + 1 :]}" for other in "A-." if other != letter}
    for text in spoiled:
        refuses(queue, GROUP, text)


def test_a_continuation_token_is_valid_only_with_the_same_body(queue: Queue) -> None:
    tasks = [queue.create() for _ in range(3)]

    def page(query: str, task_ids: list[str]) -> TestResponse:
        return queue.send("POST", f"/v1/tasks?limit=1{query}", json.dumps({"taskIds": task_ids}).encode())

    query = f"&continuationToken={page('', tasks).get_json()['continuationToken']}"
    assert page(query, tasks).get_json()["tasks"][0]["taskId"] == tasks[1]
    refused(page(query, tasks[:1]), 400, "InvalidRequestArguments", "continuationToken")


@each_list
def test_a_continuation_token_of_another_list_is_refused(queue: Queue, name: str) -> None:
    fill(queue, 3)
    queue.create(OTHER_ID)
    for _ in range(2):
        queue.create(taskGroupId=OTHER_ID, dependencies=[OTHER_ID])
    other = next(list_name for list_name in LISTS if list_name != name)
    refuses(queue, LISTS[other], token(queue, name))
    elsewhere = LISTS[name].replace(GROUP_ID, OTHER_ID).replace(TASK_ID, OTHER_ID)
    refuses(queue, elsewhere, token(queue, name))


def forged(name: str, place: str) -> str:
    """A continuationToken for any place, signed by ``paging``."""
    list_id = {"listTaskGroup": GROUP_ID, "listDependentTasks": TASK_ID}.get(name, "all")
    check = hashlib.sha256(f"{name}\n{list_id}\n{place}".encode()).hexdigest()[:16]
    return f"{base64.urlsafe_b64encode(place.encode()).decode().rstrip('=')}.{check}"


@pytest.mark.parametrize("name", ["inspectTasks", "tasksPage"])
def test_a_continuation_token_with_an_invalid_place_is_refused(queue: Queue, name: str) -> None:
    for place in ("[]", "{}", '["a"]', "[1,2]", "[1e400]", "[9223372036854775808]", "[" * 2000):
        path = {"inspectTasks": "/inspect/v1/tasks", "tasksPage": "/ui/tasks"}[name]
        target = f"{path}?continuationToken={forged(name, place)}"
        headers = {"Authorization": hawk(ROOT, "GET", ROOT_URL + target, NOW)}
        answer = queue.http.get(target, base_url=ROOT_URL, headers=headers)
        assert answer.status_code == 400
        assert "continuationToken is not from this storage" in answer.get_data(as_text=True)


@pytest.mark.parametrize("query", ["limit=1&limit=1", "continuationToken=a&limit=1&continuationToken=a"])
def test_a_repeated_query_parameter_is_refused(queue: Queue, query: str) -> None:
    answer = queue.send("GET", f"/v1{GROUP}?{query}", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "is given 2 times")
