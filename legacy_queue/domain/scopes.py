"""Who may: scopes, expressions of what a call needs, and the roles through which ``assume:`` scopes expand.

A scope that ends in ``*`` satisfies every scope with that prefix, a pattern such as ``abc*`` included. An
expression is data: an endpoint declares it once, and the check, the refusal's words and the reference
come from that. Source: taskcluster-lib-scopes and taskcluster-auth of 2017,
docs/explanation/http-contract.md#scopes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias, TypeGuard

Expression: TypeAlias = "str | AnyOf | AllOf | ForEach"
Params: TypeAlias = Mapping[str, "str | Sequence[str]"]

_PARAMETER = re.compile(r"<([a-zA-Z][a-zA-Z0-9_]*)>")


@dataclass(frozen=True)
class _Parts:
    parts: tuple[Expression, ...]


class AnyOf(_Parts):
    """One alternative is enough; without alternatives nothing is."""


class AllOf(_Parts):
    """Every requirement; without requirements nothing is needed."""


@dataclass(frozen=True)
class ForEach:
    """``each`` once for every value of the list parameter ``in_``, under the name ``variable``: inside AnyOf
    it adds alternatives, inside AllOf requirements; it stands nowhere else.
    """

    variable: str
    in_: str
    each: Expression


_NEVER = AnyOf(())


def render(expression: Expression, params: Params) -> Expression:
    """The expression with each ``<name>`` filled in and no ForEach left. A value is never read as a template.

    What an empty value would stand in is never satisfied: ``a:<worker>`` without a worker is nobody's. Raises
    KeyError and TypeError (a list for text, or the reverse) for mistakes of an endpoint.
    """
    match expression:
        case str():
            texts: list[Any] = [*_template(expression)]
            for at in range(1, len(texts), 2):
                texts[at] = params[texts[at]]
            return _NEVER if "" in texts[1::2] else "".join(texts)
        case AnyOf(parts):
            return AnyOf(tuple(part for part in _render_parts(parts, params) if part != _NEVER))
        case AllOf(parts):
            rendered = _render_parts(parts, params)
            return _NEVER if _NEVER in rendered else AllOf(rendered)
    raise TypeError(f"{type(expression).__name__} stands inside AnyOf or AllOf")


@cache
def _template(text: str) -> tuple[str, ...]:
    """Text and the names of parameters in turn; only what is declared is a template."""
    return tuple(_PARAMETER.split(text))


def _render_parts(parts: tuple[Expression, ...], params: Params) -> tuple[Expression, ...]:
    rendered: list[Expression] = []
    for part in parts:
        if isinstance(part, ForEach):
            values = params[part.in_]
            if isinstance(values, str):
                raise TypeError(f"the parameter {part.in_} is text, and a list is due")
            for value in values:
                rendered += _render_parts((part.each,), {**params, part.variable: value})
        else:
            rendered.append(render(part, params))
    return tuple(rendered)


def reference(expression: Expression) -> Any:
    """The expression in the JSON of ``api.json``: ``{"AllOf": [{"for": .., "in": .., "each": ..}]}``."""
    match expression:
        case str():
            return expression
        case ForEach(variable, in_, each):
            return {"for": variable, "in": in_, "each": reference(each)}
    return {type(expression).__name__: [reference(part) for part in expression.parts]}


def _holder(scopes: Iterable[str]) -> Callable[[str], bool]:
    """Whether all that a scope stands for is held: at about the same cost however many the scopes are."""
    exact = frozenset(scopes)
    prefixes = tuple(scope[:-1] for scope in exact if scope.endswith("*"))
    # of a pattern its prefix: ``a**`` must not pass for the wider ``a*``
    return lambda scope: scope in exact or scope.removesuffix("*").startswith(prefixes)


def covers(scopes: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether the scopes satisfy every wanted one."""
    return all(map(_holder(scopes), wanted))


def missing(scopes: Iterable[str], rendered: Expression) -> str | None:
    """What the scopes lack of a rendered expression, in words: ``(`a` and (`b` or `c`))``; None: nothing."""
    return _lack(_holder(scopes), rendered) or None


def _lack(holds: Callable[[str], bool], rendered: Expression) -> str:
    match rendered:
        case str():
            return "" if holds(rendered) else f"`{rendered}`"
        case AllOf(parts):
            return _joined(" and ", [lack for part in parts if (lack := _lack(holds, part))])
        case AnyOf(parts):
            lacks = [_lack(holds, part) for part in parts]
            return "" if "" in lacks else _joined(" or ", lacks) or "something that no scope gives"
    raise TypeError(f"{type(rendered).__name__} is rendered before scopes are held against it")


def _joined(word: str, lacks: Sequence[str]) -> str:
    return f"({word.join(lacks)})" if len(lacks) > 1 else "".join(lacks)


def is_scope(value: object) -> TypeGuard[str]:
    """Whether it is text of printable ASCII (0x20-0x7e) only."""
    return isinstance(value, str) and value.isascii() and value.isprintable()


class Roles:
    """The scopes of each role id; an id that ends in ``*`` stands for every role with that prefix. Both are
    taken as they are: there are no parameterized roles (``<..>``).
    """

    def __init__(self, scopes_by_role_id: Mapping[str, Sequence[str]]) -> None:
        self._roles = [(f"assume:{role_id}", tuple(held)) for role_id, held in scopes_by_role_id.items()]
        self._cached = lru_cache(maxsize=256)(self.expand_anew)

    def expand(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """The scopes, and those of every role they assume, directly or through another role, in a circle too.
        ``assume:foo*`` assumes all the roles that it covers.
        """
        return self._cached(tuple(scopes))

    def expand_anew(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """As ``expand``; nothing is remembered."""
        found = dict.fromkeys(scopes)  # a set that keeps its order
        to_follow, roles = list(found), self._roles
        while to_follow:
            scope = to_follow.pop()
            if not scope.startswith("assume:") and not scope.endswith("*"):
                continue
            assumed = [one for one in roles if _is_within(scope, one[0]) or _is_within(one[0], scope)]
            roles = [one for one in roles if one not in assumed]
            gained = [given for _, held in assumed for given in held if given not in found]
            found |= dict.fromkeys(gained)
            to_follow += gained
        return tuple(found)


def _is_within(scope: str, pattern: str) -> bool:
    return scope == pattern or (pattern.endswith("*") and scope.startswith(pattern[:-1]))
