"""Mutants: changes of the code that break a promise, so that a test must fail.

``scripts/mutants`` tries them.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    """A change of the code: ``old``, which occurs once in ``file``, is replaced by ``new``.

    ``breaks`` says what the product then does wrong. ``tests``, a file or a test below tests/, must fail.
    """

    breaks: str
    file: str
    old: str
    new: str
    tests: str

    def applied(self, package: Path) -> str:
        """Returns the changed text of the file. Raises ValueError if ``old`` does not occur exactly once."""
        text = (package / self.file).read_text()
        times = text.count(self.old)
        if times != 1:
            raise ValueError(f"{self.breaks}: found {times} times in {self.file}, not once: {self.old}")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All mutants, in the order of scripts/mutants.toml."""
    text = (ROOT / "scripts/mutants.toml").read_text()
    return [Mutant(**entry) for entry in tomllib.loads(text)["mutant"]]
