"""A real Chromium, Debian's, without a window."""

from collections.abc import Mapping
from datetime import timedelta

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from legacy_queue.credentials import Credentials
from legacy_queue.queue_client import QueueClient

# as root, and on a machine that reaches nothing but itself
_OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run
--disable-background-networking --disable-component-update --disable-sync"""


def chromium() -> Chrome:
    """A context manager, at whose end the browser ends."""
    options = ChromeOptions()
    for option in _OPTIONS.split():
        options.add_argument(option)
    return Chrome(options=options, service=ChromeService("/usr/bin/chromedriver"))


def sign_in(browser: Chrome, base_url: str, credentials: Mapping[str, str]) -> None:
    """Let the browser see the pages of the queue."""
    queue = QueueClient(base_url, Credentials.from_wire(credentials))
    browser.get(queue.page_link(timedelta(minutes=5)))
