"""A property that is computed once for each value."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Computed = TypeVar("Computed")


class lazy(Generic[Computed]):  # noqa: N801 - used as a decorator
    """``functools.cached_property`` without its lock, which costs Python 3.11 a dozen calls.

    Computed twice by two threads, the property of a frozen value is the same.
    """

    def __init__(self, compute: Callable[[Any], Computed]) -> None:
        self._compute = compute

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, value: Any, owner: type) -> Computed:
        # from now on Python finds it among the attributes of the value first
        computed = value.__dict__[self._name] = self._compute(value)
        return computed
