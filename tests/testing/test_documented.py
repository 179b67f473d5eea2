"""The page of the reference has every member that a user may use, and no other."""

import inspect
import re
from pathlib import Path

import pytest

from legacy_queue import pytest_plugin, testing

PAGE = (Path(__file__).parents[2] / "docs/reference/testing.md").read_text()
CLASSES = (testing.LegacyQueue, testing.ClaimedRun, testing.ActiveFault, testing.RequestFailed)


def named(text: str) -> set[str]:
    """The names at the start of the page's code spans."""
    return set(re.findall(r"`(\w+)", text))


@pytest.mark.parametrize("documented", CLASSES)
def test_the_page_has_every_public_member_of_the_class(documented: type[object]) -> None:
    own = {
        name
        for base in documented.mro()[:-1]
        if base.__module__.startswith("legacy_queue")
        for name in vars(base)
    }
    fields = set(getattr(documented, "__dataclass_fields__", ()))
    assert {name for name in own | fields if not name.startswith("_")} <= named(PAGE)


def test_the_page_has_every_argument_of_a_fault() -> None:
    assert set(inspect.signature(testing.LegacyQueue.fault).parameters) - {"self"} <= named(PAGE)


def test_the_page_has_everything_that_is_exported_and_every_fixture() -> None:
    fixtures = {name for name in vars(pytest_plugin) if name.startswith("legacy_queue")}
    assert {*testing.__all__, *fixtures} <= named(PAGE)


def test_the_page_has_no_member_that_does_not_exist() -> None:
    rows = re.findall(r"^\| ((?:`\w+[^|]*`,? ?)+)\|", PAGE, re.MULTILINE)
    members = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    existing = {name for documented in CLASSES for name in dir(documented)} | set(vars(pytest_plugin))
    existing |= set(inspect.signature(testing.LegacyQueue.fault).parameters)
    assert members - existing == set()
    assert len(members) > 30
