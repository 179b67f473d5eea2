"""Small changes of the product, each of which breaks something that a test promises to find.

``scripts/mutants.toml`` lists them; ``scripts/mutants`` runs the state machines on each, or the tests that it
names.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "scripts" / "mutants.toml"


class Rotten(Exception):
    """The mutant does not apply: the text that it changes is not there, or there more than once."""


@dataclass(frozen=True)
class Mutant:
    """``old`` occurs once in ``file``, a path in the package; ``new`` instead ``breaks`` what that says.

    ``tests``, a path in tests/, finds it where no state machine comes by.
    """

    breaks: str
    file: str
    old: str
    new: str
    tests: str = ""

    def applied(self, package: Path) -> str:
        """The text of the file with the change in it; raises Rotten."""
        text = (package / self.file).read_text()
        found = text.count(self.old)
        if found != 1:
            raise Rotten(f"{self.breaks}: found {found} times in {self.file}, not once: {self.old}")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All of them, in the order of the list."""
    return [Mutant(**entry) for entry in tomllib.loads(LIST.read_text())["mutant"]]
