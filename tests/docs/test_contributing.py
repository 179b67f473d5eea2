"""CONTRIBUTING, the workflows and the hooks name the commands that CI runs, and the examples work."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.scopes import Roles
from legacy_queue.http import task_endpoints
from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.http.views import EndpointViews
from legacy_queue.services.fault_registry import FaultRegistry
from tests.http import calls

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def fences(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in found]


def places() -> list[tuple[str, str]]:
    """The files and folders of the table of places, with the name that is to be in each."""
    rows = [line for line in CONTRIBUTING.splitlines() if line.startswith("| ")]
    return [
        (path, name or test)
        for row in rows
        for name, path, test in re.findall(r"(?:`(\w+)` in )?`([\w/.]+/[\w/.]*)(?:::(\w+))?`", row)
    ]


def test_the_tests_that_contributing_runs_exist() -> None:
    for path, word in re.findall(r"pytest -q (\S+)(?: -k (\w+))?", CONTRIBUTING):
        tests = ROOT / path
        assert tests.is_dir() or re.search(rf"def test_\w*{word}", tests.read_text())


@pytest.mark.parametrize(("path", "name"), places())
def test_each_place_in_the_table_exists(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    if name:
        assert re.search(rf"^ *(?:class|def) {name}\b", (ROOT / path).read_text(), re.MULTILINE)


class Extended(calls.Queue):
    """A server with a further endpoint."""

    def __init__(self, added: Endpoint) -> None:
        super().__init__()
        server, settings = self.server, self.settings
        authenticator = Authenticator({client.client_id: client for client in settings.clients}, Roles({}))
        without_faults = FaultInjection(FaultRegistry(()), server.services.stopping)
        views = EndpointViews(server.services, authenticator, without_faults)
        assert isinstance(server.app, Flask)
        views.add_to(server.app, [added], has_prefix=True)


def test_the_endpoint_of_the_example_does_what_its_test_says(monkeypatch: pytest.MonkeyPatch) -> None:
    declaration, its_test = fences("python")
    names: dict[str, Any] = dict(vars(task_endpoints))
    exec(declaration, names)
    added = names["abandon_task"]
    assert added.name == "abandonTask"
    monkeypatch.setitem(calls.DECLARED, added.name, added)
    scope: dict[str, Any] = dict(vars(calls))
    exec(its_test, scope)
    scope["test_abandoning_a_task_cancels_it"](Extended(added))
