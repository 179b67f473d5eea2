"""Changes of the code, each of which breaks a promise that a test checks; ``scripts/mutants`` runs them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    """Replacing ``old``, which occurs once in ``file``, a path in the package, by ``new`` breaks a promise.

    ``breaks`` says what the product then does wrong. ``tests``, a path in tests/ or a test in one, finds it.
    """

    breaks: str
    file: str
    old: str
    new: str
    tests: str

    def applied(self, package: Path) -> str:
        """Returns the text of the file with the change; raises ValueError if ``old`` does not occur once."""
        text = (package / self.file).read_text()
        times = text.count(self.old)
        if times != 1:
            raise ValueError(f"{self.breaks}: found {times} times in {self.file}, not once: {self.old}")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All mutants, in the order of the list."""
    text = (ROOT / "scripts/mutants.toml").read_text()
    return [Mutant(**entry) for entry in tomllib.loads(text)["mutant"]]
