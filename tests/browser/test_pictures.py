"""The pictures in README and docs have the words that the pages show now."""

from collections.abc import Iterator

import pytest
from PIL import Image
from selenium.webdriver import Chrome

from tests.browser.chromium import chromium
from tests.browser.pictures import FOLDER, PICTURES, WORDS

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize(
    "name", ["life", *(pytest.param(name, marks=pytest.mark.nightly) for name in PICTURES if name != "life")]
)
def test_a_picture_shows_what_the_page_shows(browser: Chrome, name: str) -> None:
    with Image.open(FOLDER / f"{name}.png") as image:
        words = str(image.info[WORDS])
    shown = PICTURES[name](browser).words
    assert words == shown, "the picture is older than the page: scripts/docs --pictures makes a new one"
