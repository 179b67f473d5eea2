"""Each name of the package means one thing, and no word of a private vocabulary is left in it."""

import ast
import re
from collections import defaultdict

import pytest

from tests.docs.terminal import ROOT

SOURCES = {path: path.read_text() for path in sorted((ROOT / "legacy_queue").rglob("*.py"))}

# standard words that are said instead: dead letter, periodic job, publish, timeout, disconnected, ...
AVOIDED = (
    r"nobody(?!@example\.com)",
    r"somebody",
    r"someone",
    r"poison\w*",
    r"chores?\b(?!-)",
    r"announcers?",
    r"patience",
    r"hung up",
    r"is_gone",
    r"unclaim\w*",
    r"untold",
    r"withdraw\w*",
    r"sees? through",
    r"own[ _]server",
    r"_(?:MOST|LONGEST)(?:_\w+)?",
    r"those that",
    r"those who",
)


def repeated(places: dict[str, list[str]]) -> dict[str, list[str]]:
    assert len(places) > 100
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_classes_of_the_package_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, source in SOURCES.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert repeated(places) == {}


def test_no_two_modules_of_the_package_have_the_same_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        if path.name not in ("__init__.py", "__main__.py"):
            places[path.stem].append(str(path.relative_to(ROOT)))
    assert repeated(places) == {}


@pytest.mark.parametrize("word", AVOIDED)
def test_no_module_of_the_package_has_an_avoided_word(word: str) -> None:
    pattern = re.compile(rf"(?<!\w){word}(?!\w)")
    lines = {
        f"{path.relative_to(ROOT)}:{number}": line.strip()
        for path, source in SOURCES.items()
        for number, line in enumerate(source.splitlines(), 1)
        if pattern.search(line)
    }
    assert lines == {}
