"""The references of the server agree with its endpoints and with the calls of the real client."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from legacy_queue.http.references import api_reference
from tests.clients.python import taskcluster
from tests.http.calls import (
    DECLARED,
    PREFIXES,
    ROOT_URL,
    Queue,
    play,
    reference,
    schema,
    served_schema,
    succeeded,
)
from tests.http.published import exchanges
from tests.http.test_scopes import CONTRACT

NEWEST = json.loads((Path(__file__).parents[1] / "clients" / "newest_methods.json").read_text())
ENTRIES = {entry["name"]: entry for entry in reference()["entries"]}


def schemas_of(entry: Any) -> list[str]:
    return [entry[kind] for kind in ("input", "output", "schema") if kind in entry]


def test_the_reference_lists_all_endpoints() -> None:
    assert list(ENTRIES) == list(DECLARED)
    assert reference()["baseUrl"] == f"{ROOT_URL}/v1"
    assert reference() == api_reference(tuple(DECLARED.values()), ROOT_URL)


@pytest.mark.parametrize("name", [name for name in ENTRIES if name in {*taskcluster.Queue.funcinfo, *NEWEST}])
def test_an_entry_of_the_reference_equals_that_of_the_client(name: str) -> None:
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
def test_an_entry_names_the_scopes_of_the_contract(name: str) -> None:
    if (name, "lowest") not in CONTRACT:
        assert "scopes" not in ENTRIES[name]
        return
    text = repr(ENTRIES[name]["scopes"])
    named = {re.sub(r"<\w+>.*", "", scope) for scope in re.findall(r"'(queue:[^']+|assume:[^']+)'", text)}
    wanted = [scope for scopes in CONTRACT[name, "lowest"] for scope in scopes]
    for prefix in named:
        assert any(scope.startswith(prefix) for scope in wanted), prefix
    for scope in wanted:
        if scope.startswith(("queue:", "assume:")):
            assert any(scope.startswith(prefix) for prefix in named), scope


@pytest.mark.parametrize(
    "ref",
    sorted({ref for entry in [*ENTRIES.values(), *exchanges()["entries"]] for ref in schemas_of(entry)}),
)
def test_each_schema_of_the_reference_is_served_and_valid(ref: str) -> None:
    served = schema(ref)
    assert served["$id"] == ROOT_URL + ref
    jsonschema_rs.meta.validate(served)
    assert served["additionalProperties"] is False


@pytest.mark.parametrize("name", ENTRIES)
def test_each_endpoint_answers_by_its_served_schema_under_the_second_prefix(queue: Queue, name: str) -> None:
    """Nearly all other tests call under the first prefix."""
    answer = succeeded(play(queue, name, prefix=PREFIXES[1]))
    assert answer.content_type == ("application/json" if answer.status_code != 204 else None)
    if "output" in ENTRIES[name]:
        served_schema(name).validate(answer.get_json())
