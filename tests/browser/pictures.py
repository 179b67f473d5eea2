"""The pictures in README and docs are photographs of pages in a real Chromium, after real runs.

``scripts/docs --pictures`` writes them to docs/pictures. Each PNG also has the words of its page. A test
makes the same runs and compares the words. If a page shows other words, the test fails.
"""

import base64
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from selenium.webdriver import Chrome

from legacy_queue.testing import LegacyQueue, RequestFailed
from legacy_queue.testing.claimed_run import Resolution
from legacy_queue.testing.wire_types import Priority
from tests.browser.chromium import sign_in
from tests.docs.page import read
from tests.docs.terminal import CLIENTS, ROOT

FOLDER = ROOT / "docs/pictures"
WORDS = "Description"  # the key of the words in a PNG
_MARGIN = 12  # CSS pixels; the page has a margin of its own at the bottom
_VARIES = {  # differs from run to run
    r"\b[A-Za-z0-9_-]{8}[Q-T][A-Za-z0-9_-]{12}[AQgw]\b": "(taskId)",
    r"\d{4}-\d\d-\d\d": "(date)",
    r"\d\d:\d\d:\d\d(\.\d+)?": "(time)",
    r"\b\d+ (s|min|h|days?) ago\b": "(age)",
    r"\b\d+m( \d+s)?\b|\b\d+ ?s\b": "(duration)",
    r"\(date\),? (?=\((time|duration)\))": "",  # after midnight
}
_PARTS = "return [...document.querySelectorAll(arguments[0])]"
# the words of a drawing include its titles, which say what the shapes show
_WORDS = f"""{_PARTS}.flatMap(each => each.innerText ?? [...each.querySelectorAll('title, text')]
    .map(words => words.textContent)).join('\\n')"""
_PLACES = f"""{_PARTS}.map(each => each.getBoundingClientRect())
    .map(each => [each.left + scrollX, each.top + scrollY, each.right + scrollX, each.bottom + scrollY])"""

# the pool, how many of its tasks are pending at each priority, and how many workers have a task
Load = tuple[str, Mapping[Priority, int], int]
_LONG_PENDING: list[Load] = [
    ("gecko-t/t-osx-1010", {"medium": 4, "very-low": 7}, 0),
    ("gecko-t/t-win10", {"high": 3, "medium": 5, "low": 12}, 0),
]
_BUSY: list[Load] = [
    ("gecko-1/b-linux", {"low": 2, "very-low": 3}, 3),
    ("gecko-1/decision", {}, 1),
    ("gecko-3/b-linux", {"highest": 1, "very-high": 4, "medium": 2}, 4),
    ("gecko-3/b-win2012", {"very-high": 3, "medium": 1}, 2),
    ("gecko-3/decision", {"highest": 1}, 1),
    ("gecko-3/images", {}, 0),
    ("gecko-t/t-linux-large", {"medium": 6, "low": 4, "very-low": 9}, 4),
    ("gecko-t/t-win10", {}, 2),
    ("releng/balrog-scriptworker", {}, 1),
    ("releng/beetmover-v1", {"highest": 2}, 1),
    ("releng/builder", {}, 0),
    ("releng/signing-linux-v1", {"highest": 1, "high": 2}, 2),
]


class Picture(NamedTuple):
    """A photograph. ``words`` are its text, without the parts that differ from run to run."""

    png: bytes
    words: str


def photographed(browser: Chrome, url: str, parts: str, width: int = 1000) -> Picture:
    """Photograph the parts of a page that match a CSS selector, and what is between them.

    ``width`` is the width of the screen.
    """
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1.5, "mobile": False}
    light = {"name": "prefers-color-scheme", "value": "light"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [light]})
    browser.get(url)
    browser.execute_script("document.querySelectorAll('details:not(.ask)').forEach(each => each.open = true)")
    words = re.sub(r"\s*\n\s*", "\n", browser.execute_script(_WORDS, parts))
    for pattern, word in _VARIES.items():
        words = re.sub(pattern, word, words)
    left, top, right, bottom = zip(*browser.execute_script(_PLACES, parts), strict=True)
    x, y = max(0, min(left) - _MARGIN), max(0, min(top) - _MARGIN)
    clip = {"x": x, "y": y, "width": max(right) + _MARGIN - x, "height": max(bottom) - y}
    photo = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True}
    png = browser.execute_cdp_cmd("Page.captureScreenshot", photo)["data"]
    return Picture(base64.b64decode(png), f"{words.strip()}\n")


@contextmanager
def _signed_in(browser: Chrome) -> Iterator[LegacyQueue]:
    """A queue. The browser is signed in to its pages."""
    with LegacyQueue() as queue:
        sign_in(browser, queue.base_url, queue.credentials)
        yield queue


def overview(browser: Chrome) -> Picture:
    """A busy queue with a dozen pools, and what needs attention."""
    with _signed_in(browser) as queue:
        _end(queue, "gecko-t/t-linux-large", {"completed": 14, "failed": 2})
        _load(queue, _LONG_PENDING)
        queue.advance("14m")
        queue.create_task(task_queue_id="gecko-3/b-linux")
        queue.claim(task_queue_id="gecko-3/b-linux", worker_group="us-west-2", worker_id="i-dead")
        queue.advance("22m")
        _end(queue, "gecko-1/b-linux", {"completed": 3, "failed": 1})
        queue.quarantine(task_queue_id="gecko-1/b-linux")
        queue.create_task(task_queue_id="releng/bulider")
        first = queue.create_task(task_queue_id="gecko-3/decision")
        queue.create_task(task_queue_id="gecko-3/b-win2012", dependencies=[first], task_group_id=first)
        decision = queue.claim(task_queue_id="gecko-3/decision")
        assert decision
        decision.report("failed")
        task_id = queue.create_task(task_queue_id="gecko-3/images")
        queue.put_message("doubled", task_id, task_queue_id="gecko-3/images")
        queue.claim(task_queue_id="gecko-3/images", protocol="draft")
        with suppress(RequestFailed):
            queue.claim(task_queue_id="gecko-3/images", protocol="draft", worker_id="second")
        _load(queue, _BUSY)
        queue.advance("100s")
        return photographed(browser, queue.root_url, "header, main")


def _load(queue: LegacyQueue, loads: list[Load]) -> None:
    """Create the tasks of each pool.

    At least one worker of each pool asks for work, ten seconds after the pool before.
    """
    for pool, pending, running in loads:
        for number in range(max(1, running)):
            if number < running:
                queue.create_task(task_queue_id=pool, priority="highest")
            worker_id = f"i-{crc32(pool.encode()) + number:08x}"
            queue.claim(task_queue_id=pool, worker_group="us-west-2", worker_id=worker_id)
        for priority, count in pending.items():
            for _ in range(count):
                queue.create_task(task_queue_id=pool, priority=priority)
        queue.advance("10s")


def _end(queue: LegacyQueue, pool: str, resolutions: Mapping[Resolution, int]) -> None:
    """Create tasks and let one worker resolve them."""
    for resolution, count in resolutions.items():
        for _ in range(count):
            queue.create_task(task_queue_id=pool)
            run = queue.claim(task_queue_id=pool)
            assert run
            run.report(resolution)


def life(browser: Chrome) -> Picture:
    """A task whose worker dies after two reclaims. Then another worker completes it."""
    with _signed_in(browser) as queue:
        pool = "gecko-3/b-linux"
        name = {"name": "build-linux64/opt", "description": "An optimized build for Linux"}
        task_id = queue.create_task(task_queue_id=pool, priority="high", metadata=name)
        queue.advance("40s")
        run = queue.claim(task_queue_id=pool, protocol="draft", worker_group="us-west-2", worker_id="doomed")
        for _ in range(2):
            queue.advance("15m")
            assert run
            run = run.reclaim()
        queue.advance("22m")
        run = queue.claim(task_queue_id=pool, protocol="draft", worker_group="us-west-2", worker_id="second")
        queue.advance("12m")
        assert run
        run.report("completed")
        queue.wait_for_event("task-group-resolved")
        page = f"{queue.root_url}/ui/tasks/{task_id}"
        return photographed(browser, page, "h1, ol.history", 760)


def report(browser: Chrome) -> Picture:
    """The report of conform on the worker that docs/how-to/conform.md fixes."""
    steps = read(ROOT / "docs/how-to/conform.md").steps
    [worker] = [step.text for step in steps if step.mark == "file worker.py"]
    [command] = [step.text for step in steps if "--report" in step.text and "python3 worker.py" in step.text]
    path = os.pathsep.join([f"{CLIENTS}/.venv/bin", str(Path(sys.executable).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "worker.py").write_text(worker)
        env = {**os.environ, "PATH": path}
        ended = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, check=False)
        assert ended.returncode == 1, ended.stderr.decode()
        return photographed(browser, Path(folder, "report.html").as_uri(), "h1, h1 + p, section")


PICTURES: Mapping[str, Callable[[Chrome], Picture]] = {"overview": overview, "life": life, "report": report}
