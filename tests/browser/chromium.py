"""Debian's real Chromium, without a window."""

from collections.abc import Mapping
from datetime import timedelta

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from legacy_queue.credentials import Credentials
from legacy_queue.queue_client import QueueClient

# for root, and for a machine that can reach only itself
_OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run
--disable-background-networking --disable-component-update --disable-sync"""


def chromium() -> Chrome:
    """A browser, as a context manager that closes it."""
    options = ChromeOptions()
    for option in _OPTIONS.split():
        options.add_argument(option)
    return Chrome(options=options, service=ChromeService("/usr/bin/chromedriver"))


def sign_in(browser: Chrome, base_url: str, credentials: Mapping[str, str]) -> None:
    """Sign the browser in to the pages of the queue."""
    queue = QueueClient(base_url, Credentials.from_wire(credentials))
    browser.get(queue.page_link(timedelta(minutes=5)))
