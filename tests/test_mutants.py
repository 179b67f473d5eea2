"""The mutants themselves: that they are found shows ``scripts/mutants``, which takes minutes."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, mutants


@cache
def intact(file: Path) -> str:
    return ast.dump(ast.parse(file.read_text()))


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.breaks)
def test_every_mutant_still_applies(mutant: Mutant) -> None:
    package = ROOT / "legacy_queue"
    assert ast.dump(ast.parse(mutant.applied(package))) != intact(package / mutant.file)


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.breaks)
def test_the_tests_that_find_a_mutant_are_there(mutant: Mutant) -> None:
    assert (ROOT / "tests" / mutant.tests).exists()


def test_no_two_mutants_have_one_name() -> None:
    names = [mutant.breaks for mutant in mutants()]
    assert len(set(names)) == len(names)
