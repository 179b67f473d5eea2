"""Every mutant of the list applies to the code. ``scripts/mutants`` shows that its tests find it."""

import ast
from functools import cache
from pathlib import Path

from tests.mutants import ROOT, mutants


@cache
def intact(file: Path) -> str:
    return ast.dump(ast.parse(file.read_text()))


def test_each_mutant_changes_the_code_and_names_tests_that_exist() -> None:
    package = ROOT / "legacy_queue"
    for mutant in mutants():
        assert ast.dump(ast.parse(mutant.applied(package))) != intact(package / mutant.file), mutant.breaks
        file, _, name = mutant.tests.partition("::")
        path = ROOT / "tests" / file
        assert mutant.tests, mutant.breaks
        assert path.exists(), mutant.tests
        assert not name or f"def {name.partition('[')[0]}(" in path.read_text(), mutant.tests
