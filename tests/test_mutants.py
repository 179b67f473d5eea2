"""Every mutant applies to the code. ``scripts/mutants`` shows that tests find it, which takes minutes."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, mutants


@cache
def intact(file: Path) -> str:
    return ast.dump(ast.parse(file.read_text()))


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.breaks)
def test_a_mutant_applies_and_changes_the_code(mutant: Mutant) -> None:
    package = ROOT / "legacy_queue"
    assert ast.dump(ast.parse(mutant.applied(package))) != intact(package / mutant.file)


def test_the_tests_of_each_mutant_exist() -> None:
    files = {mutant.tests.partition("::")[0] for mutant in mutants()}
    assert [file for file in files if not (ROOT / "tests" / file).exists()] == []
