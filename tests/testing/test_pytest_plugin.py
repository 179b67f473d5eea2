"""The plugin in another project's test suite, in a process of its own with two pytest-xdist workers."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from legacy_queue.pytest_plugin import _pictures
from legacy_queue.testing import LegacyQueue
from tests.system.real_clients import python_of_today

pytest_plugins = ["pytester"]

TOKEN = "an-access-token-that-is-never-shown"

# one worker of pytest-xdist runs this file, the other runs MARKED
DEFAULTS = """
import sys
import unittest

from legacy_queue.testing import LegacyQueue


def test_the_process_of_the_tests_is_not_patched(legacy_queue):
    assert "gevent" not in sys.modules


def test_the_session_has_the_same_server(legacy_queue_server, legacy_queue):
    assert legacy_queue_server is legacy_queue
    assert set(legacy_queue.env.values()) == {legacy_queue.root_url, *legacy_queue.credentials.values()}


def test_that_fails(legacy_queue):
    run_id = legacy_queue.create_task(worker_type="builds") and legacy_queue.claim("builds").run_id
    legacy_queue.fault("createTask", status=503)
    legacy_queue.create_task(task_id="not-a-task-id")


def test_that_forgets_its_fault(legacy_queue):
    legacy_queue.fault("azure.receive", lose=True)


def test_that_fails_without_a_queue():
    assert not "without"


class WithUnittest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.queue = cls.enterClassContext(LegacyQueue())

    def test_that_fails_in_a_class(self):
        self.queue.create_task(provisioner_id="of-the-class")
        self.fail()


def test_the_newest_client_is_there_too(legacy_queue):
    import taskcluster

    assert "baseUrl" not in taskcluster.Queue.classOptions
    task_id = legacy_queue.create_task()
    assert legacy_queue.client().status(task_id)["status"]["state"] == "pending"
"""
MARKED = f"""
from datetime import timedelta

import pytest

pytestmark = pytest.mark.legacy_queue(
    claim_timeout="30s", clients={{"worker": {{"accessToken": "{TOKEN}", "scopes": ["*"]}}}}
)


@pytest.fixture
def queue_of_mine(legacy_queue):
    return legacy_queue


def test_the_marker_sets_the_server_up(queue_of_mine):
    task_id = queue_of_mine.create_task()
    left = queue_of_mine.claim().taken_until - queue_of_mine.now()
    assert left <= timedelta(seconds=30)
    credentials = {{"clientId": "worker", "accessToken": "{TOKEN}"}}
    assert queue_of_mine.client(credentials=credentials).cancelTask(task_id)


def test_that_fails_with_settings(queue_of_mine):
    queue_of_mine.wait_for(queue_of_mine.create_task(), "completed", timeout=0.1)


@pytest.mark.legacy_queue(claim_timeout="60s")
def test_the_nearest_marker_wins(legacy_queue):
    legacy_queue.create_task()
    assert legacy_queue.claim().taken_until - legacy_queue.now() > timedelta(seconds=30)


@pytest.mark.legacy_queue(claim_timout="60s")
def test_that_misspells_a_setting(legacy_queue):
    pass


@pytest.mark.legacy_queue("azurite")
def test_that_names_no_setting(legacy_queue):
    pass
"""

SAID = (
    "*createTask      400 InvalidRequestArguments * taskId is 'not-a-task-id'*",
    "*test-provisioner/builds running: run 0 running by test-group/test-worker until*",
    "*test-provisioner/test-worker-type * lowest, visible, dequeue count 0",
    "*of-the-class/test-worker-type pending: run 0 pending",
    "*createTask status=503, fired: 0",
    "*warnings of the server: none",
    "*test_defaults.py:*: FaultNeverFired: this fault never fired: endpoint='azure.receive', lose=True",
    "the server did not start: there is no setting LEGACY_QUEUE_CLAIM_TIMOUT; the nearest is *_CLAIM_TIMEOUT",
    "*UsageError: pytest.mark.legacy_queue: expected settings as keywords, such as storage='azurite'*",
)


@pytest.mark.processes
def test_another_projects_test_suite_gets_the_fixtures_and_reports(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    [newest_client] = python_of_today().parents[1].glob("lib/*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(newest_client), prepend=":")
    pytester.makepyfile(test_defaults=DEFAULTS, test_marked=MARKED)
    ran = pytester.runpytest_subprocess(
        *("-n", "2", "--dist", "loadfile", "--strict-markers"),
        *("-W", "error", "-W", "default::legacy_queue.testing.FaultNeverFired"),
    )
    ran.assert_outcomes(passed=6, failed=4, errors=2, warnings=2)
    said = ran.stdout.str()
    assert said.count("- legacy-queue -") == 3, "one report for each failed test that used a queue"
    for line in SAID:
        ran.stdout.fnmatch_lines_random(line)
    pages = [Path(path).read_text() for path in re.findall("the tasks as pictures: (.*)", said)]
    assert sorted(page.count("<ol ") for page in pages) == [1, 1, 1]
    assert TOKEN not in said + "".join(pages)
    assert "contextlib" not in said, "the error of a server that does not start has no traceback"
    ours = re.findall(r"legacy_queue/(?:testing/|queue_client)\S*:\d+", said)
    assert ours == [], "a traceback ends where the test calls the package"


def test_if_pictures_cannot_be_written_a_report_has_none() -> None:
    test: Any = SimpleNamespace(nodeid="test_one.py::test", config="without a cache")
    assert _pictures(test, LegacyQueue(), 0) == ""


@pytest.mark.processes
def test_if_the_fixtures_are_not_used_only_the_plugin_is_imported() -> None:
    program = "import pytest, sys; before = set(sys.modules); import legacy_queue.pytest_plugin; "
    program += "print(*sorted(set(sys.modules) - before))"
    said = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert said == "legacy_queue legacy_queue.pytest_plugin\n"
