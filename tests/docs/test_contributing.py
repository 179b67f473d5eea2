"""What CONTRIBUTING, the workflows and the hooks say is what CI runs, and the examples work."""

import configparser
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from werkzeug.test import Client as HttpClient

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.scopes import Roles
from legacy_queue.http import task_endpoints
from legacy_queue.http.app import ENDPOINTS
from legacy_queue.http.dispatch import Dispatcher
from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.request_log import RequestLog
from tests.http import calls

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def fences(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", CONTRIBUTING, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in found]


def commands(environment: str) -> list[str]:
    """The commands of ``tox -e environment``."""
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    return tox[f"testenv:{environment}"]["commands"].split("\n")[1:]


def places() -> list[tuple[str, str]]:
    """The files and folders of the table of places, with the name that is to be in each."""
    rows = [line for line in CONTRIBUTING.splitlines() if line.startswith("| ")]
    return [
        (path, name or test)
        for row in rows
        for name, path, test in re.findall(r"(?:`(\w+)` in )?`([\w/.]+/[\w/.]*)(?:::(\w+))?`", row)
    ]


def test_the_hooks_call_the_checks_of_ci() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    assert [hook["entry"].removeprefix(".venv/bin/") for hook in hooks] == commands("checks")
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in hooks)


def test_each_workflow_runs_only_the_script_of_ci() -> None:
    workflows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for workflow in workflows:
        steps = [
            step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]
        ]
        commands = [step["run"] for step in steps if "run" in step]
        assert commands == ["sudo --preserve-env=CI .ci/run"]
        assert [step["uses"] for step in steps if "uses" in step] == ["actions/checkout@v4"]
    assert (ROOT / ".ci/run").read_text().count("/../scripts/test") == 1


def test_the_checks_in_contributing_are_those_of_ci() -> None:
    lines = [line for text in fences("sh") for line in text.splitlines()]
    own = [line.removeprefix(".venv/bin/") for line in lines if line.startswith(".venv/bin/")]
    assert [line for line in own if not line.startswith(("pytest ", "pip "))] == commands("checks")


def test_the_tests_that_contributing_runs_exist() -> None:
    for path, word in re.findall(r"pytest -q (\S+)(?: -k (\w+))?", CONTRIBUTING):
        tests = ROOT / path
        assert tests.is_dir() or re.search(rf"def test_\w*{word}", tests.read_text())


def test_only_a_run_of_all_tests_measures_coverage_and_demands_every_branch() -> None:
    assert any(re.fullmatch(r"scripts/test -e tests -- -k \w+\n", text) for text in fences("sh"))
    [command] = commands("tests")
    begin, words_of_a_whole_run, end = re.split(r"\{posargs:(.*)\}", command)
    assert words_of_a_whole_run == "--cov --cov-fail-under=100"
    assert "cov" not in begin + end


@pytest.mark.parametrize(("path", "name"), places())
def test_each_place_in_the_table_exists(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    if name:
        assert re.search(rf"^ *(?:class|def) {name}\b", (ROOT / path).read_text(), re.MULTILINE)


class Extended(calls.Queue):
    """A server that has one more endpoint."""

    def __init__(self, added: Endpoint) -> None:
        super().__init__()
        server, settings = self.server, self.settings
        authenticator = Authenticator({client.client_id: client for client in settings.clients}, Roles({}))
        endpoints, rest = (*ENDPOINTS, added), server.app
        self.http = HttpClient(RequestLog(Dispatcher(endpoints, (), rest, server.services, authenticator)))


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
