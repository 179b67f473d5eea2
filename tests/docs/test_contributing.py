"""The example of CONTRIBUTING works."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.endpoints import tasks
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.http.views import EndpointViews
from legacy_queue.services.control.fault_registry import FaultRegistry
from tests.http import calls

CONTRIBUTING = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
FENCES = re.findall(r"^ *```python\n(.*?)^ *```$", CONTRIBUTING, re.MULTILINE | re.DOTALL)


class Extended(calls.Queue):
    """A server with a further endpoint."""

    def __init__(self, added: Endpoint) -> None:
        super().__init__()
        server = self.server
        without_faults = FaultInjection(FaultRegistry(()), server.services.stopping)
        assert isinstance(server.app, Flask)
        EndpointViews(server.site, without_faults).add_to(server.app, [added])


def test_the_endpoint_of_the_example_does_what_its_test_says(monkeypatch: pytest.MonkeyPatch) -> None:
    declaration, its_test = map(textwrap.dedent, FENCES)
    names: dict[str, Any] = dict(vars(tasks))
    exec(declaration, names)
    added = names["abandon_task"]
    assert added.name == "abandonTask"
    monkeypatch.setitem(calls.DECLARED, added.name, added)
    scope: dict[str, Any] = dict(vars(calls))
    exec(its_test, scope)
    scope["test_abandoning_a_task_cancels_it"](Extended(added))
