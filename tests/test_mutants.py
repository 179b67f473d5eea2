"""Every mutant in scripts/mutants.toml fits the code. ``scripts/mutants`` shows that its tests fail."""

import ast

from tests.mutants import ROOT, mutants


def test_each_mutant_fits_the_code_and_names_tests_that_exist() -> None:
    for mutant in mutants():
        ast.parse(mutant.applied(ROOT / "legacy_queue"))
        file, _, name = mutant.tests.partition("::")
        path = ROOT / "tests" / file
        assert file, mutant.breaks
        assert path.exists(), mutant.tests
        assert not name or f"def {name.partition('[')[0]}(" in path.read_text(), mutant.tests
