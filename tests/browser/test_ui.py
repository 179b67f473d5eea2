"""The web pages in a real Chromium. They follow what happens without a reload, and never run text of a task.

They can be read and used on a phone, in dark mode, and with only a keyboard. axe-core checks that.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from legacy_queue.conform.report import Report, Verdict, written
from legacy_queue.conform.rules import RULES
from tests import clients
from tests.browser.chromium import chromium, sign_in
from tests.http.calls import page_paths, succeeded
from tests.system.http_queue import Queue
from tests.system.processes import Server, serve, wait_until

pytestmark = pytest.mark.processes

AXE = Path(clients.__path__[0]) / "node_modules/axe-core/axe.min.js"
ATTACK = "<script>document.title = 'attacked'</script><img src=x onerror=\"document.title='attacked'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(browser: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--storage", "memory", "--control", "--poll-visibility", "15s")
    with serve(tmp_path_factory.mktemp("server"), *options) as server:
        sign_in(browser, server.base_url, server.credentials)
        assert "bewit" not in browser.current_url
        yield server


def until(condition: Callable[[], object]) -> None:
    """Wait until the condition is true. The page may be replaced while the condition looks at it."""

    def holds() -> object:
        with suppress(WebDriverException):
            return condition()
        return None

    wait_until(holds)


def text_of(browser: Chrome, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def opened(browser: Chrome, url: str) -> None:
    """Open a page and wait until it follows the events. Sets a mark that a reload would remove."""
    browser.get(url)
    until(lambda: "Live" in text_of(browser, "#followed"))
    browser.execute_script("window.mark = true")
    # without this, the page would be updated after a while even if it missed the event
    browser.execute_script("clearTimeout(due); dueAt = live.dataset.every = Infinity")


def is_not_reloaded(browser: Chrome) -> bool:
    return bool(browser.execute_script("return window.mark"))


def test_a_page_shows_a_task_from_pending_to_completed_without_a_reload(
    browser: Chrome, server: Server
) -> None:
    opened(browser, f"{server.root_url}/ui/tasks")
    queue = Queue(server)
    task_id = queue.create(workerType="seen")
    row = f"//tbody/tr[contains(., '{task_id}')]"
    until(lambda: "pending" in browser.find_element(By.XPATH, row).text)
    assert queue.claim(task_id).status_code == 200
    until(lambda: "running" in browser.find_element(By.XPATH, row).text)
    queue.ask("reportCompleted", taskId=task_id, runId=0)
    until(lambda: "completed" in browser.find_element(By.XPATH, row).text)
    assert is_not_reloaded(browser)


def test_a_hidden_page_closes_its_connection_and_makes_no_requests(browser: Chrome, server: Server) -> None:
    opened(browser, f"{server.root_url}/ui/tasks")
    count = "return performance.getEntriesByType('resource').length"
    hide = "Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {}}})"
    change = "; document.dispatchEvent(new Event('visibilitychange'))"
    browser.execute_script(hide.format("true") + change)
    assert browser.execute_script("return events.readyState === EventSource.CLOSED && dueAt === Infinity")
    before = browser.execute_script(count)
    task_id = Queue(server).create(workerType="hidden")
    assert browser.execute_script(count) == before
    browser.execute_script(hide.format("false") + change)
    until(lambda: task_id in text_of(browser, "main"))
    assert is_not_reloaded(browser)


def test_a_log_is_shown_while_it_grows(browser: Chrome, server: Server) -> None:
    queue = Queue(server)
    task_id = queue.create(workerType="logged")
    opened(browser, f"{server.root_url}/ui/tasks/{task_id}")
    queue.claim(task_id)
    created = queue.artifact(task_id, "public/logs/live.log").get_json()
    queue.upload(created["putUrl"], b"a line of the log")
    queue.ask("reportCompleted", taskId=task_id, runId=0)
    until(lambda: browser.find_element(By.CSS_SELECTOR, "#log summary").is_displayed())
    browser.find_element(By.CSS_SELECTOR, "#log summary").click()
    until(lambda: text_of(browser, "#log pre") == "a line of the log")
    assert is_not_reloaded(browser)


def test_an_update_of_the_page_does_not_overwrite_a_field_that_somebody_types_into(
    browser: Chrome, server: Server
) -> None:
    opened(browser, server.root_url)
    field = browser.find_element(By.CSS_SELECTOR, "#live input[type=search]")
    field.send_keys("words")
    browser.execute_script("return refresh()")
    assert (field.get_property("value"), browser.switch_to.active_element) == ("words", field)
    browser.execute_script("document.activeElement.blur(); return refresh()")
    assert browser.find_element(By.CSS_SELECTOR, "#live input[type=search]").get_property("value") == ""


@pytest.fixture(scope="module")
def pages(server: Server) -> list[str]:
    """The URLs of all pages, with something to show in each of their parts."""
    queue = Queue(server)
    metadata = {**queue.task_body()["metadata"], "name": ATTACK}
    task_id = queue.running(workerType="attacked", metadata=metadata)
    lost = queue.create(workerType="attacked", dependencies=[task_id], taskGroupId=task_id)
    succeeded(queue.artifact(task_id, "public/log", "reference"))
    queue.ask("reclaimTask", taskId=task_id, runId=0)
    return [*page_paths(task_id, "system/attacked"), f"/ui/tasks/{lost}", "/ui/tasks?q=none", "/ui/none"]


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_a_page_is_readable_on_each_screen(
    browser: Chrome, server: Server, pages: list[str], width: int, scheme: str
) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    axe, found = AXE.read_text(), {}
    for page in pages:
        browser.get(server.root_url + page)
        browser.execute_script(axe)
        violations = browser.execute_async_script("axe.run().then(arguments[0], arguments[0])")["violations"]
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        found[page] = [
            *(f"{each['id']}: {node['html'][:200]}" for each in violations for node in each["nodes"]),
            *([f"{wide} wide"] if wide > width else []),
        ]
    assert {page: wrong for page, wrong in found.items() if wrong} == {}


def test_the_report_of_conform_needs_no_horizontal_scrolling(browser: Chrome, tmp_path: Path) -> None:
    report = Report("draft", [Verdict(each, "held", ()) for each in RULES], 1, ["idle: ended\n" + "a" * 999])
    file = tmp_path / "report.html"
    file.write_text(written([report], ".html"))
    screen = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(file.as_uri())
    wide = "return [...document.querySelectorAll('html, pre')].filter(it => it.scrollWidth > it.clientWidth)"
    assert browser.execute_script(wide) == []


def test_a_task_and_its_moments_can_be_reached_with_the_keyboard(
    browser: Chrome, server: Server, pages: list[str]
) -> None:
    task_id = next(page for page in pages if "tasks/" in page).rpartition("/")[2]
    browser.get(server.root_url)
    keys = ActionChains(browser)
    for _ in range(20):
        keys.send_keys(Keys.TAB).perform()
        if browser.switch_to.active_element.get_attribute("name") == "q":
            break
    keys.send_keys(task_id, Keys.ENTER).perform()
    until(lambda: browser.current_url.endswith(f"/ui/tasks/{task_id}"))
    for _ in range(40):
        keys.send_keys(Keys.TAB).perform()
        if str(browser.switch_to.active_element.get_dom_attribute("href")).startswith("#moment-"):
            break
    keys.send_keys(Keys.ENTER).perform()
    until(lambda: browser.find_elements(By.CSS_SELECTOR, "li:target"))


def test_text_of_a_task_is_never_run_as_a_script(browser: Chrome, server: Server, pages: list[str]) -> None:
    browser.get_log("browser")
    for page in pages[:-1]:
        opened(browser, server.root_url + page)
        assert browser.title != "attacked"
        assert browser.find_elements(By.CSS_SELECTOR, "main img, main script") == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
