"""Scopes, the expressions that say which scopes a call needs, and the roles that ``assume:`` scopes expand
to.

A scope that ends in ``*`` satisfies every scope with that prefix, also a pattern such as ``abc*``. An
expression is data. An endpoint declares it, and from this declaration come the check, the text of the refusal
and the reference page. Source: taskcluster-lib-scopes and taskcluster-auth of 2017,
docs/explanation/http-contract.md#scopes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard

Expression: TypeAlias = "str | AnyOf | AllOf | ForEach"
Params: TypeAlias = Mapping[str, Any]  # for each name a text, or a list of texts for ForEach

# reads that needed no scope in the queue of 2018: by default, callers without credentials have these scopes
OPEN_READS = (
    *("queue:get-task:*", "queue:status:*", "queue:list-task-group:*", "queue:list-dependent-tasks:*"),
    *("queue:list-artifacts:*", "queue:get-artifact:public/*", "queue:pending-count:*"),
    *("queue:list-provisioners", "queue:get-provisioner:*", "queue:list-worker-types:*"),
    *("queue:get-worker-type:*", "queue:list-workers:*", "queue:get-worker:*", "queue:events"),
)
# the scopes of all reads; some cover those above
READS = (
    *OPEN_READS,
    *("queue:get-artifact:*", "queue:claimed-count:*", "queue:pending-list:*", "queue:claimed-list:*"),
    *("queue:list-task-queues", "queue:get-task-queue:*"),
)
_NO_SCOPE = "something that no scope gives"
_NAME = re.compile(r"<([a-zA-Z][a-zA-Z0-9_]*)>")
_SCOPE = re.compile("[ -~]*")


@dataclass(frozen=True)
class _Parts:
    parts: tuple[Expression, ...]


class AnyOf(_Parts):
    """One of the alternatives is enough. Without alternatives it is never satisfied."""


class AllOf(_Parts):
    """Every requirement is needed. Without requirements it is always satisfied."""


@dataclass(frozen=True)
class ForEach:
    """``each`` for every value of the list parameter ``in_``; the value has the name ``variable``.

    It stands only inside AnyOf, where it adds alternatives, or AllOf, where it adds requirements.
    """

    variable: str
    in_: str
    each: Expression


def reference(expression: Expression) -> Any:
    """Returns the expression as JSON of ``api.json``: ``{"AllOf": [{"for": .., "in": .., "each": ..}]}``."""
    match expression:
        case str():
            return expression
        case ForEach(variable, in_, each):
            return {"for": variable, "in": in_, "each": reference(each)}
    return {type(expression).__name__: [reference(part) for part in expression.parts]}


def templates(expression: Expression) -> tuple[str, ...]:
    """Returns the scopes in the expression, with their ``<name>`` not filled in."""
    match expression:
        case str():
            return (expression,)
        case ForEach(each=each):
            return templates(each)
    return tuple(template for part in expression.parts for template in templates(part))


def may_satisfy(scopes: Iterable[str], template: str) -> bool:
    """Whether one of the scopes can satisfy the template for some parameters."""
    begin = template.partition("<")[0]
    return any(_is_within(begin, scope) or scope.startswith(begin) for scope in scopes)


@lru_cache(maxsize=256)
def _holder(scopes: tuple[str, ...]) -> Callable[[str], bool]:
    """Returns a function that says whether a scope is satisfied. More scopes hardly make it slower."""
    exact = frozenset(scopes)
    if "*" in exact:  # for example the issuer of the credentials of all claims
        return lambda _: True
    prefixes = tuple(scope[:-1] for scope in exact if scope.endswith("*"))
    # compare the prefix of a pattern, because ``a**`` must not satisfy the wider ``a*``
    return lambda scope: scope in exact or scope.removesuffix("*").startswith(prefixes)


def covers(scopes: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether the scopes satisfy every wanted scope."""
    return all(map(_holder(tuple(scopes)), wanted))


def missing(scopes: Iterable[str], expression: Expression, params: Params) -> str | None:
    """Returns the part of the expression that the scopes lack, such as ``(`a` and (`b` or `c`))``, or None.

    ``params`` fill in each ``<name>``. A value is never read as a template. A scope with an empty value, such
    as ``a:<worker>`` without a worker, is never satisfied. Raises KeyError or TypeError if an endpoint
    declared a wrong expression.
    """
    return _lack(_holder(tuple(scopes)), expression, params) or None


def _lack(holds: Callable[[str], bool], expression: Expression, params: Params) -> str:
    match expression:
        case str():
            texts = _NAME.split(expression)  # every other text is a name
            texts[1::2] = [params[name] for name in texts[1::2]]
            if "" in texts[1::2]:
                return _NO_SCOPE
            scope = "".join(texts)
            return "" if holds(scope) else f"`{scope}`"
        case AllOf(parts):
            lacks = [lack for part in expanded(parts, params) if (lack := _lack(holds, *part))]
            return _NO_SCOPE if _NO_SCOPE in lacks else _joined(" and ", lacks)
        case AnyOf(parts):
            lacks = []
            for part in expanded(parts, params):
                lacks.append(_lack(holds, *part))
                if not lacks[-1]:
                    return ""  # one alternative is enough: forget what the others lack
            return _joined(" or ", [lack for lack in lacks if lack != _NO_SCOPE]) or _NO_SCOPE
    raise TypeError(f"{type(expression).__name__} stands inside AnyOf or AllOf")


def expanded(parts: Iterable[Expression], params: Params) -> Sequence[tuple[Expression, Params]]:
    """Returns each part with the parameters that fill it. A ForEach becomes one part for each value."""
    found: list[tuple[Expression, Params]] = []
    for part in parts:
        match part:
            case ForEach(variable, in_, each):
                for value in params[in_]:
                    found += expanded([each], {**params, variable: value})
            case _:
                found += [(part, params)]
    return found


def _joined(word: str, lacks: Sequence[str]) -> str:
    return f"({word.join(lacks)})" if len(lacks) > 1 else "".join(lacks)


def is_scope(value: object) -> TypeGuard[str]:
    """Whether the value is text of printable ASCII (0x20-0x7e)."""
    return isinstance(value, str) and _SCOPE.fullmatch(value) is not None


class Roles:
    """The scopes of each roleId. A roleId that ends in ``*`` stands for every role with that prefix.

    Parameterized roles (``<..>``) do not exist here.
    """

    def __init__(self, scopes_by_role_id: Mapping[str, Sequence[str]]) -> None:
        self._roles = [(f"assume:{role_id}", tuple(held)) for role_id, held in scopes_by_role_id.items()]
        self._cached = lru_cache(maxsize=256)(self._expand)

    def expand(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """Returns the scopes, and the scopes of every role that they assume, directly or through other roles.

        Roles may assume each other in a circle. ``assume:foo*`` assumes all roles that it covers.
        """
        return self._cached(tuple(scopes))

    def _expand(self, scopes: tuple[str, ...]) -> tuple[str, ...]:
        expanded = dict.fromkeys(scopes)  # a set that keeps its order
        to_follow = list(expanded)
        roles = self._roles
        while to_follow and roles:
            scope = to_follow.pop()
            if not scope.startswith("assume:") and not scope.endswith("*"):
                continue
            assumed = [role for role in roles if _is_within(scope, role[0]) or _is_within(role[0], scope)]
            # assume each role once, so that a circle of roles ends
            roles = [role for role in roles if role not in assumed]
            gained = [gain for _, held in assumed for gain in held if gain not in expanded]
            expanded |= dict.fromkeys(gained)
            to_follow += gained
        return tuple(expanded)


def _is_within(scope: str, pattern: str) -> bool:
    return scope == pattern or (pattern.endswith("*") and scope.startswith(pattern[:-1]))
