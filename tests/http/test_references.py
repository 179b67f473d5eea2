"""The references that the server serves agree with its endpoints and with the real clients' calls."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from legacy_queue.http import declared_endpoints
from legacy_queue.http.parameters import PARAMETERS
from tests.clients.python import taskcluster
from tests.http.calls import DECLARED, ROOT_URL, reference, schema
from tests.http.published_references import exchanges

NEWEST = json.loads((Path(__file__).parents[1] / "clients" / "newest_methods.json").read_text())
ENTRIES = {entry["name"]: entry for entry in reference()["entries"]}


def schemas_of(entry: Any) -> list[str]:
    return [entry[kind] for kind in ("input", "output", "schema") if kind in entry]


def test_the_reference_lists_all_endpoints() -> None:
    assert list(ENTRIES) == list(DECLARED)
    assert reference()["baseUrl"] == f"{ROOT_URL}/v1"


def test_each_parameter_of_an_endpoint_has_a_pattern_and_no_pattern_is_unused() -> None:
    named = {name for endpoint in declared_endpoints.DECLARED for name in (*endpoint.args, *endpoint.query)}
    assert named == {*PARAMETERS}


@pytest.mark.parametrize("name", [name for name in ENTRIES if name in {*taskcluster.Queue.funcinfo, *NEWEST}])
def test_each_entry_of_the_reference_equals_the_clients(name: str) -> None:
    """``funcinfo`` was generated from the original queue's reference, NEWEST from the reference of 2026."""
    theirs, ours = taskcluster.Queue.funcinfo.get(name) or {"name": name, **NEWEST[name]}, ENTRIES[name]
    for field in ("args", "method", "name", "route", "stability"):
        assert ours[field] == theirs[field]
    assert ours["query"] == theirs.get("query", [])
    assert ("output" in ours) == ("output" in theirs or name == "pendingTasks" or name == "ping")
    schema_name = theirs.get("output", "").rpartition("/")[2]
    assert ours.get("output", "").endswith(schema_name)
    if "input" in theirs:
        assert ours["input"].endswith(theirs["input"].rpartition("/")[2])


@pytest.mark.parametrize(
    "ref",
    sorted({ref for entry in [*ENTRIES.values(), *exchanges()["entries"]] for ref in schemas_of(entry)}),
)
def test_each_schema_of_the_reference_is_served_and_valid(ref: str) -> None:
    served = schema(ref)
    assert served["$id"] == ROOT_URL + ref
    jsonschema_rs.meta.validate(served)
    assert served["additionalProperties"] is False
