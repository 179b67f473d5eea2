"""A real Chromium, Debian's, without a window."""

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

# as root, and on a machine that reaches nothing but itself
_OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run
--disable-background-networking --disable-component-update --disable-sync"""


def chromium() -> Chrome:
    """A context manager, at whose end the browser ends."""
    options = ChromeOptions()
    for option in _OPTIONS.split():
        options.add_argument(option)
    return Chrome(options=options, service=ChromeService("/usr/bin/chromedriver"))
