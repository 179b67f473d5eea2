"""What the other ports share: the clock, lost races, and what cannot be read."""

from abc import ABC, abstractmethod
from datetime import datetime


class AlreadyExists(Exception):
    """There is something under that key."""


class Changed(Exception):
    """Somebody else wrote first, or it is gone: read again and decide again."""


class Corrupt(Exception):
    """What is stored under that key cannot be read, and is logged: no retry cures it."""


class Clock(ABC):
    @abstractmethod
    def now(self) -> datetime:
        """The time in UTC, whole milliseconds."""
