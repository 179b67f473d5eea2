"""The page in a real Chromium: it follows what happens without a reload, and runs no word of a task."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from legacy_queue.cli.queue_options import CalledQueue
from legacy_queue.credentials import Credentials
from legacy_queue.domain.ids import slugid
from tests.system.http_queue import Queue, definition
from tests.system.processes import LONG, Server, serve

# as root, and on a machine that reaches nothing but itself
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run
--disable-background-networking --disable-component-update --disable-sync"""
ATTACK = "<script>document.title = 'attacked'</script><img src=x onerror=\"document.title='attacked'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = ChromeOptions()
    for option in OPTIONS.split():
        options.add_argument(option)
    with Chrome(options=options, service=ChromeService("/usr/bin/chromedriver")) as browser:
        yield browser


@pytest.fixture(scope="module")
def server(browser: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--storage", "memory", "--control", "--poll-visibility", "15s")
    with serve(tmp_path_factory.mktemp("server"), *options) as server:
        sign_in(browser, server)
        yield server


def until(browser: Chrome, condition: Callable[[], object]) -> None:
    """Wait until it holds. Another version of the page may come while it is looked at."""
    WebDriverWait(browser, LONG, 0.1, ignored_exceptions=[Exception]).until(lambda _: condition())


def text_of(browser: Chrome, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def sign_in(browser: Chrome, server: Server) -> None:
    credentials = Credentials.from_wire(server.credentials)
    browser.get(CalledQueue(server.base_url, credentials).page_link(timedelta(minutes=5)))
    assert "bewit" not in browser.current_url


def opened(browser: Chrome, url: str) -> None:
    """The page, which follows the events; it has a mark that a reload would remove."""
    browser.get(url)
    until(browser, lambda: "Events are followed" in text_of(browser, "#live"))
    browser.execute_script("window.mark = true")


def is_not_reloaded(browser: Chrome) -> bool:
    return bool(browser.execute_script("return window.mark"))


def test_a_task_is_seen_from_pending_to_completed_without_a_reload(browser: Chrome, server: Server) -> None:
    opened(browser, f"{server.root_url}/?state=all")
    queue = Queue(server)
    task_id = queue.create(definition("seen"))
    row = f"//section[@aria-labelledby='tasks-head']//tr[contains(., '{task_id}')]"
    until(browser, lambda: "pending" in browser.find_element(By.XPATH, row).text)
    claim = queue.claim_by_name(task_id, 0).json()["credentials"]
    until(browser, lambda: "running" in browser.find_element(By.XPATH, row).text)
    queue.with_credentials(claim).on_run((task_id, 0), "completed")
    until(browser, lambda: "completed" in browser.find_element(By.XPATH, row).text)
    until(browser, lambda: f"task-completed {task_id} run 0 completed" in text_of(browser, "#events"))
    assert is_not_reloaded(browser)


def test_no_word_of_a_task_is_run(browser: Chrome, server: Server) -> None:
    body = definition("attacked")
    body["metadata"] = {**body["metadata"], "name": ATTACK}
    task_id = Queue(server).create(body)
    opened(browser, server.root_url)
    until(browser, lambda: ATTACK in text_of(browser, "main"))
    for target in ("", f"?taskId={task_id}"):
        opened(browser, f"{server.root_url}/{target}")
        assert browser.title == "legacy-queue"
        assert browser.find_elements(By.CSS_SELECTOR, "main img, main script") == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_ten_thousand_tasks_are_on_pages(browser: Chrome, tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        first = Queue(server).create(definition("many"))
        file = server.data_dir / "storage.sqlite"
    with closing(sqlite3.connect(file)) as db, db:
        row = db.execute("SELECT * FROM rows WHERE partition = ? AND key = 'task'", (first,)).fetchone()
        marks = ", ".join("?" * len(row))
        new_ids = (slugid() for _ in range(9_999))
        copies = ([v.replace(first, new) if isinstance(v, str) else v for v in row] for new in new_ids)
        db.executemany(f"INSERT INTO rows VALUES ({marks})", copies)
    with serve(tmp_path) as server:
        sign_in(browser, server)
        opened(browser, server.root_url)
        until(browser, lambda: "10000" in text_of(browser, "section:first-of-type tbody tr"))
        rows = (By.CSS_SELECTOR, "section[aria-labelledby=tasks-head] tbody tr")
        assert len(browser.find_elements(*rows)) == 50
        shown = browser.find_elements(*rows)[0].text
        browser.find_element(By.LINK_TEXT, "more tasks").click()
        until(browser, lambda: "behind=" in browser.current_url)
        opened(browser, browser.current_url)
        assert browser.find_elements(*rows)[0].text != shown
        assert len(browser.find_elements(*rows)) == 50
