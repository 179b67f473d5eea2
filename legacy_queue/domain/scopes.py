"""Who may: scopes, expressions of what a call needs, and the roles through which ``assume:`` scopes expand.

A scope that ends in ``*`` satisfies every scope with that prefix, a pattern such as ``abc*`` included. An
expression is data: an endpoint declares it once, and the check, the refusal's words and the reference
come from that. Source: taskcluster-lib-scopes and taskcluster-auth of 2017, design/api.md.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias, TypeGuard

Expression: TypeAlias = "str | AnyOf | AllOf | ForEach"
Params: TypeAlias = Mapping[str, "str | Sequence[str]"]

_PARAMETER = re.compile(r"<([a-zA-Z][a-zA-Z0-9_]*)>")


@dataclass(frozen=True)
class AnyOf:
    """One alternative is enough; without alternatives nothing is."""

    alternatives: tuple[Expression, ...]


@dataclass(frozen=True)
class AllOf:
    """Every requirement; without requirements nothing is needed."""

    requirements: tuple[Expression, ...]


@dataclass(frozen=True)
class ForEach:
    """``each`` once for every value of the list parameter ``in_``, under the name ``variable``.

    Inside AnyOf it adds alternatives, inside AllOf requirements; it stands nowhere else.
    """

    variable: str
    in_: str
    each: Expression


_NEVER = AnyOf(())


def render(expression: Expression, params: Params) -> Expression:
    """The expression with each ``<name>`` filled in and no ForEach left.

    A value is never read as a template. What an empty value would stand in is never satisfied: ``a:<worker>``
    without a worker is nobody's. A parameter that is not given is a KeyError, a list where text
    is due (or the reverse) a TypeError: both are mistakes of the endpoint, not of the caller.
    """
    match expression:
        case str():
            parts = [*_template(expression)]
            for at in range(1, len(parts), 2):
                parts[at] = _text(params, parts[at])
                if not parts[at]:
                    return _NEVER
            return "".join(parts)
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
            for value in _list(params, part.in_):
                rendered += _render_parts((part.each,), {**params, part.variable: value})
        else:
            rendered.append(render(part, params))
    return tuple(rendered)


def _text(params: Params, name: str) -> str:
    value = params[name]
    if not isinstance(value, str):
        raise TypeError(f"the parameter {name} is a list, and text is due")
    return value


def _list(params: Params, name: str) -> Sequence[str]:
    value = params[name]
    if isinstance(value, str):
        raise TypeError(f"the parameter {name} is text, and a list is due")
    return value


def reference(expression: Expression) -> Any:
    """The expression in the JSON of ``api.json``: ``{"AllOf": [{"for": .., "in": .., "each": ..}]}``."""
    match expression:
        case str():
            return expression
        case AnyOf(parts):
            return {"AnyOf": [reference(part) for part in parts]}
        case AllOf(parts):
            return {"AllOf": [reference(part) for part in parts]}
    return {"for": expression.variable, "in": expression.in_, "each": reference(expression.each)}


class _Held:
    """Scopes arranged so that asking for one costs about the same however many there are."""

    def __init__(self, scopes: Iterable[str]) -> None:
        self._exact = frozenset(scopes)
        self._prefixes = tuple(scope[:-1] for scope in self._exact if scope.endswith("*"))

    def has(self, scope: str) -> bool:
        """Whether all that the scope stands for is held: ``a**`` must not pass for the wider ``a*``."""
        return scope in self._exact or scope.removesuffix("*").startswith(self._prefixes)


def covers(scopes: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether the scopes satisfy every wanted one."""
    held = _Held(scopes)
    return all(held.has(scope) for scope in wanted)


def missing(scopes: Iterable[str], rendered: Expression) -> str | None:
    """What the scopes lack of a rendered expression, in words: ``(`a` and (`b` or `c`))``; None: nothing."""
    return _lack(_Held(scopes), rendered) or None


def _lack(held: _Held, rendered: Expression) -> str:
    match rendered:
        case str():
            return "" if held.has(rendered) else f"`{rendered}`"
        case AllOf(parts):
            return _joined(" and ", [lack for part in parts if (lack := _lack(held, part))])
        case AnyOf(parts):
            lacks = [_lack(held, part) for part in parts]
            return "" if "" in lacks else _joined(" or ", lacks) or "something that no scope gives"
    raise TypeError(f"{type(rendered).__name__} is rendered before scopes are held against it")


def _joined(word: str, lacks: Sequence[str]) -> str:
    return f"({word.join(lacks)})" if len(lacks) > 1 else "".join(lacks)


def is_scope(value: object) -> TypeGuard[str]:
    """Whether it is text of printable ASCII (0x20-0x7e) only."""
    return isinstance(value, str) and value.isascii() and value.isprintable()


class Roles:
    """The scopes of each role id; an id that ends in ``*`` stands for every role with that prefix.

    Ids and scopes are taken as they are: there are no parameterized roles (``<..>``).
    """

    def __init__(self, scopes_by_role_id: Mapping[str, Sequence[str]]) -> None:
        self._roles = [(f"assume:{role_id}", tuple(held)) for role_id, held in scopes_by_role_id.items()]
        self._cached = lru_cache(maxsize=256)(self._expanded)

    def expand(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """The scopes, and those of every role they assume, directly or through another role.

        ``assume:foo*`` assumes all the roles that it covers. Roles may assume each other in a circle.
        """
        return self._cached(tuple(scopes))

    def _expanded(self, scopes: tuple[str, ...]) -> tuple[str, ...]:
        found = dict.fromkeys(scopes)  # a set that keeps its order
        to_follow, roles = list(found), self._roles
        while to_follow:
            scope = to_follow.pop()
            if not scope.startswith("assume:") and not scope.endswith("*"):
                continue
            assumed = {role for role, _ in roles if _is_within(scope, role) or _is_within(role, scope)}
            for given in (given for role, held in roles if role in assumed for given in held):
                if given not in found:
                    found[given] = None
                    to_follow.append(given)
            roles = [(role, held) for role, held in roles if role not in assumed]
        return tuple(found)


def _is_within(scope: str, pattern: str) -> bool:
    return scope == pattern or (pattern.endswith("*") and scope.startswith(pattern[:-1]))
