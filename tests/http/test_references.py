"""What the server says of itself, held against what it does and what the real client calls."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from legacy_queue.http.control_schemas import CONTROL_SCHEMAS
from legacy_queue.http.object_schemas import OBJECT_SCHEMAS
from legacy_queue.http.references import api_reference
from legacy_queue.http.schemas import SCHEMAS
from tests.clients.python import taskcluster
from tests.http.calls import (
    DECLARED,
    ROOT_URL,
    Queue,
    play,
    reference,
    refused,
    schema,
    succeeded,
    task_body,
)
from tests.http.published import exchanges
from tests.http.test_scopes import CONTRACT

NEWEST = json.loads((Path(__file__).parents[1] / "clients" / "newest_methods.json").read_text())
ENTRIES = {entry["name"]: entry for entry in reference()["entries"]}


def schemas_of(entry: Any) -> list[str]:
    return [entry[kind] for kind in ("input", "output", "schema") if kind in entry]


def test_an_endpoint_is_not_in_the_reference() -> None:
    assert list(ENTRIES) == list(DECLARED)
    assert reference()["baseUrl"] == f"{ROOT_URL}/v1"
    assert reference() == api_reference(tuple(DECLARED.values()), ROOT_URL)


@pytest.mark.parametrize("name", [one for one in ENTRIES if one in {*taskcluster.Queue.funcinfo, *NEWEST}])
def test_an_entry_differs_from_the_clients_table(name: str) -> None:
    """``funcinfo`` was generated from the original queue's reference, NEWEST from that of 2026."""
    theirs, ours = taskcluster.Queue.funcinfo.get(name) or {"name": name, **NEWEST[name]}, ENTRIES[name]
    for field in ("args", "method", "name", "route", "stability"):
        assert ours[field] == theirs[field]
    assert ours["query"] == theirs.get("query", [])
    assert ("output" in ours) == ("output" in theirs or name == "pendingTasks" or name == "ping")
    schema_name = theirs.get("output", "").rpartition("/")[2]
    assert ours.get("output", "").endswith(schema_name)
    if "input" in theirs:
        assert ours["input"].endswith(theirs["input"].rpartition("/")[2])


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_nothing_of_what_it_is(name: str) -> None:
    entry = ENTRIES[name]
    assert entry["type"] == "function"
    assert len(entry["title"]) > 5
    assert entry["description"].endswith((".", "seconds."))
    assert re.findall(r"<(\w+)>", entry["route"]) == entry["args"]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_reference_says_other_scopes_than_are_asked_for(name: str) -> None:
    if (name, "lowest") not in CONTRACT:
        assert "scopes" not in ENTRIES[name]
        return
    text = repr(ENTRIES[name]["scopes"])
    named = {re.sub(r"<\w+>.*", "", one) for one in re.findall(r"'(queue:[^']+|assume:[^']+)'", text)}
    wanted = [scope for scopes in CONTRACT[name, "lowest"] for scope in scopes]
    for one in named:
        assert any(scope.startswith(one) for scope in wanted), one
    for scope in wanted:
        if scope.startswith(("queue:", "assume:")):
            assert any(scope.startswith(one) for one in named), scope


@pytest.mark.parametrize(
    "ref",
    sorted({ref for entry in [*ENTRIES.values(), *exchanges()["entries"]] for ref in schemas_of(entry)}),
)
def test_a_schema_that_is_referred_to_is_missing_or_broken(ref: str) -> None:
    found = schema(ref)
    assert found["$id"] == ROOT_URL + ref
    jsonschema_rs.meta.validate(found)
    assert found["additionalProperties"] is False


def test_a_schema_is_referred_to_by_nothing() -> None:
    entries = [*ENTRIES.values(), *exchanges()["entries"]]
    used = {ref.rpartition("/")[2] for entry in entries for ref in schemas_of(entry)}
    # of /migration, of the stubs of other services and of objects: they are not in the queue's reference
    others = ("migration-response", "scope-set", "purge-requests-response")
    beside = (*others, *OBJECT_SCHEMAS, *CONTROL_SCHEMAS)
    assert used | {f"{name}.json#" for name in beside} == {f"{name}.json#" for name in SCHEMAS}


def test_an_unknown_schema_is_served(queue: Queue) -> None:
    for name in ("nothing", "task.json", "..", "Task"):
        answer = queue.send("GET", f"/schemas/queue/v1/{name}.json", credentials=None)
        refused(answer, 404, "ResourceNotFound", "create-task-request")


def test_a_served_schema_accepts_what_the_server_refuses() -> None:
    validator = jsonschema_rs.validator_for(schema(ENTRIES["createTask"]["input"]), validate_formats=True)
    assert validator.is_valid(task_body())
    for wrong in ({"retries": 50}, {"routes": ["r", "r"]}, {"metadata": {}}, {"created": "today"}, {"x": 1}):
        assert not validator.is_valid(task_body(**wrong))


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if "output" in entry])
def test_an_answer_is_not_valid_against_its_served_schema(queue: Queue, name: str) -> None:
    """Every call of the suite is held against it; here each endpoint once, for sure."""
    answer = succeeded(play(queue, name)).get_json()
    jsonschema_rs.validator_for(schema(ENTRIES[name]["output"]), validate_formats=True).validate(answer)


def test_the_reference_needs_credentials(queue: Queue) -> None:
    succeeded(queue.send("GET", "/references/queue/v1/api.json", credentials=None))
