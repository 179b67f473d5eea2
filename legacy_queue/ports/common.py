"""What the other ports share: the clock, lost races, and what is kept until a time of its own."""

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


class Expiring(ABC):
    """What is kept until a time of its own."""

    @abstractmethod
    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        """Remove up to ``limit`` of what expired before ``now``, from where ``after`` says, "" the beginning.

        Answers where to go on, None at the end. What was changed meanwhile so that it lives longer stays.
        Safe to repeat, and in several processes at once.
        """
