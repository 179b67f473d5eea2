"""listTaskGroup and listDependentTasks: whole, page by page, and with invalid tokens."""

import base64
import json
import string
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.http.calls import GROUP_ID, TASK_ID, TODAY, Queue, refused, succeeded

OTHER_ID = "OtherAAAQ3GP5tDKTRPnTA"
GROUP, DEPENDENTS = f"/task-group/{GROUP_ID}/list", f"/task/{TASK_ID}/dependents"
LISTS = {"listTaskGroup": GROUP, "listDependentTasks": DEPENDENTS}
each_list = pytest.mark.parametrize("name", LISTS)


def fill(queue: Queue, count: int) -> list[str]:
    """Create that many tasks in the group that depend on TASK_ID; their ids in the order of the list."""
    if queue.call("task", taskId=TASK_ID).status_code == 404:
        queue.create(TASK_ID)
    made = [queue.create(taskGroupId=GROUP_ID, dependencies=[TASK_ID]) for _ in range(count)]
    return sorted(made)


def get(queue: Queue, name: str, query: str = "", prefix: str = "/v1") -> Any:
    return succeeded(queue.send("GET", f"{prefix}{LISTS[name]}{query}")).get_json()


def ids(page: Any) -> list[str]:
    return [entry["status"]["taskId"] for entry in page["tasks"]]


def pages(queue: Queue, name: str, limit: int, between: Callable[[], Any] = lambda: None) -> Iterator[Any]:
    page = get(queue, name, f"?limit={limit}")
    while True:
        yield page
        if "continuationToken" not in page:
            return
        between()
        page = get(queue, name, f"?continuationToken={page['continuationToken']}&limit={limit}")


@each_list
def test_a_list_holds_the_definition_and_the_status_of_its_tasks(queue: Queue, name: str) -> None:
    made = fill(queue, 3)
    queue.create()
    page = get(queue, name, prefix=TODAY)
    assert sorted(ids(page)) == made
    of_group = {"taskGroupId", "schedulerId", "expires"}
    assert set(page) == {"tasks", *(of_group if name == "listTaskGroup" else {"taskId"})}
    assert page.get("taskGroupId", GROUP_ID) == GROUP_ID
    assert page.get("taskId", TASK_ID) == TASK_ID
    for entry in page["tasks"]:
        task_id = entry["status"]["taskId"]
        assert entry["task"] == queue.definition(task_id)
        assert {"status": entry["status"]} == queue.call("status", taskId=task_id, prefix=TODAY).get_json()


@each_list
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7])
def test_all_pages_together_hold_each_task_once_within_the_limit(queue: Queue, name: str, limit: int) -> None:
    made = fill(queue, 6)
    seen = list(pages(queue, name, limit))
    assert sorted(task_id for page in seen for task_id in ids(page)) == made
    assert [len(page["tasks"]) for page in seen] == [limit] * (6 // limit) + [6 % limit] * bool(6 % limit)


@each_list
def test_a_page_of_large_tasks_has_at_most_five_mebibytes(queue: Queue, name: str) -> None:
    queue.create(TASK_ID)
    payload = {"log": "x" * 800 * 1024}
    made = [queue.create(taskGroupId=GROUP_ID, dependencies=[TASK_ID], payload=payload) for _ in range(9)]
    seen = list(pages(queue, name, 1000))
    assert [task_id for page in seen for task_id in ids(page)] == sorted(made)
    assert [len(page["tasks"]) for page in seen] == [5, 4]


@each_list
def test_an_unread_answer_releases_its_memory(queue: Queue, name: str) -> None:
    queue.create(TASK_ID)
    payload = {"log": "x" * 800 * 1024}
    for _ in range(5):
        queue.create(taskGroupId=GROUP_ID, dependencies=[TASK_ID], payload=payload)
    for _ in range(12):
        queue.send("GET", f"/v1{LISTS[name]}").close()
        queue.send("HEAD", f"/v1{LISTS[name]}").close()
        refused(queue.send("GET", f"/v1/task/{OTHER_ID}/dependents"), 404, "ResourceNotFound")


@each_list
def test_a_task_added_between_two_pages_moves_no_other_task(queue: Queue, name: str) -> None:
    made = fill(queue, 5)
    seen = [task_id for page in pages(queue, name, 1, lambda: fill(queue, 1)) for task_id in ids(page)]
    assert len(seen) == len(set(seen))
    assert set(made) <= set(seen)


def test_a_group_of_a_single_task_is_listed(queue: Queue) -> None:
    queue.create(TASK_ID)
    page = succeeded(queue.send("GET", f"/v1/task-group/{TASK_ID}/list")).get_json()
    assert (page["taskGroupId"], ids(page)) == (TASK_ID, [TASK_ID])


def test_a_task_without_dependents_has_an_empty_list(queue: Queue) -> None:
    queue.create(TASK_ID)
    assert get(queue, "listDependentTasks") == {"taskId": TASK_ID, "tasks": []}


@pytest.mark.parametrize("ending", ["", "?limit=1"])
def test_the_list_of_an_unknown_task_or_group_is_not_found(queue: Queue, ending: str) -> None:
    refused(queue.send("GET", f"/v1{GROUP}{ending}"), 404, "ResourceNotFound", GROUP_ID)
    refused(queue.send("GET", f"/v1{DEPENDENTS}{ending}"), 404, "ResourceNotFound", TASK_ID)


@pytest.mark.parametrize("limit", ["1", "9", "10", "99", "100", "999", "1000"])
def test_a_valid_limit_is_accepted(queue: Queue, limit: str) -> None:
    fill(queue, 1)
    assert len(ids(get(queue, "listTaskGroup", f"?limit={limit}"))) == 1


@pytest.mark.parametrize(
    "limit", ["0", "-1", "1001", "10000", "01", "1.0", "1e2", "+1", "%20", "", "all", "%D9%A1", "1%0A", "%00"]
)
def test_an_invalid_limit_is_refused(queue: Queue, limit: str) -> None:
    answer = queue.send("GET", f"/v1{GROUP}?limit={limit}", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "limit is", "1000")


@pytest.mark.parametrize(
    ("query", "mentioned"),
    [
        ("limit=1&limit=2", "limit is given 2 times"),
        ("limit=1&limit=1", "once is accepted"),
        ("continuationToken=a&limit=1&continuationToken=a", "continuationToken is given 2 times"),
        ("Limit=1", "takes no query parameter 'Limit'"),
        ("offset=1", "'offset'"),
        ("limit=1&exchange=task-pending", "'exchange'"),
    ],
)
def test_an_unknown_or_repeated_query_parameter_is_refused(queue: Queue, query: str, mentioned: str) -> None:
    answer = queue.send("GET", f"/v1{GROUP}?{query}", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", mentioned)


@each_list
def test_an_empty_token_is_the_beginning(queue: Queue, name: str) -> None:
    fill(queue, 3)
    page = get(queue, name, "?continuationToken=&limit=1000")
    assert page["tasks"] == get(queue, name, "")["tasks"]
    assert page["tasks"]


def token(queue: Queue, name: str) -> str:
    return str(get(queue, name, "?limit=1")["continuationToken"])


def content(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def packed(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def refuses(queue: Queue, target: str, text: str) -> None:
    answer = queue.send("GET", f"/v1{target}?continuationToken={text}", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "continuationToken is")


@each_list
def test_a_token_needs_no_encoding_in_a_query(queue: Queue, name: str) -> None:
    fill(queue, 3)
    assert set(token(queue, name)) <= {*string.ascii_letters, *string.digits, "-", "_"}


@each_list
def test_a_changed_token_is_refused(queue: Queue, name: str) -> None:
    fill(queue, 3)
    good = token(queue, name)
    spoiled = {good[:length] for length in range(1, len(good))}
    spoiled |= {good + more for more in ("A", "AA", "AAAA", "=", "%3D", "%0A", good)}
    for place, letter in enumerate(good):
        spoiled.add(f"{good[:place]}{'B' if letter == 'A' else 'A'}{good[place + 1 :]}")
    for text in spoiled:
        refuses(queue, LISTS[name], text)


@each_list
def test_a_token_of_another_list_is_refused(queue: Queue, name: str) -> None:
    fill(queue, 3)
    queue.create(OTHER_ID)
    for _ in range(2):
        queue.create(taskGroupId=OTHER_ID, dependencies=[OTHER_ID])
    other = next(list_name for list_name in LISTS if list_name != name)
    refuses(queue, LISTS[other], token(queue, name))
    elsewhere = LISTS[name].replace(GROUP_ID, OTHER_ID).replace(TASK_ID, OTHER_ID)
    refuses(queue, elsewhere, token(queue, name))
    theirs = succeeded(queue.send("GET", f"/v1{elsewhere}?limit=1")).get_json()["continuationToken"]
    refuses(queue, LISTS[name], theirs)


@each_list
def test_a_forged_token_is_refused(queue: Queue, name: str) -> None:
    fill(queue, 3)
    good = content(token(queue, name))
    invented: list[Any] = [
        {},
        [],
        None,
        1,
        "after",
        {"after": good["after"]},
        {**good, "after": OTHER_ID},
        {**good, "after": ""},
        {**good, "after": None},
        {**good, "after": {"a": 1}},
        {**good, "after": "\ud800"},
        {**good, "check": "0" * 16},
        {**good, "more": 1},
        dict(reversed(good.items())),
    ]
    for value in invented:
        refuses(queue, LISTS[name], packed(value))
    for text in ("x", "AAAA", "-", "_" * 300, "A" * 301, "W" * 299, OTHER_ID, "%FF", "a.b"):
        refuses(queue, LISTS[name], text)
    for deep in ("[" * 220, '{"a":' * 44, "[" * 2600, '{"a":' * 520):
        refuses(queue, LISTS[name], base64.urlsafe_b64encode(deep.encode()).decode().rstrip("="))


@each_list
def test_a_token_is_valid_under_both_prefixes_and_for_all_processes(queue: Queue, name: str) -> None:
    made = fill(queue, 3)
    good = token(queue, name)
    replica = Queue(clock=queue.clock, storage=queue.server.storage)
    replica.clock.advance(timedelta(hours=2))
    page = get(replica, name, f"?continuationToken={good}", "/api/queue/v1")
    assert len(ids(page)) == 2
    assert set(ids(page)) < set(made)


@each_list
def test_a_signature_covers_the_query(queue: Queue, name: str) -> None:
    fill(queue, 3)
    asked = f"/v1{LISTS[name]}?limit=1&continuationToken={token(queue, name)}"
    succeeded(queue.send("GET", asked))
    other = asked.replace("limit=1&", "limit=2&")
    with capture_logs() as logs:  # no scopes are needed: the wrong signature is only logged
        succeeded(queue.send("GET", other, signed_url=f"http://queue.test{asked}"))
    assert [(entry["event"], entry["endpoint"]) for entry in logs] == [("authentication-ignored", name)]


def test_the_reference_names_the_query_parameters_of_the_lists(queue: Queue) -> None:
    reference = queue.send("GET", "/references/queue/v1/api.json", credentials=None).get_json()
    queries = {entry["name"]: entry["query"] for entry in reference["entries"] if entry["query"]}
    assert {name: queries[name] for name in LISTS} == {name: ["continuationToken", "limit"] for name in LISTS}
