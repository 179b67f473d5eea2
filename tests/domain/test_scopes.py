"""Scope expressions and roles, against taskcluster-lib-scopes' and taskcluster-auth's own examples."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legacy_queue.domain.scopes import (
    AllOf,
    AnyOf,
    Expression,
    ForEach,
    Roles,
    covers,
    is_scope,
    missing,
)

texts = st.text("ab*", max_size=4)
scope_lists = st.lists(texts, max_size=5)
expressions: st.SearchStrategy[Expression] = st.recursive(
    texts,
    lambda inner: st.builds(
        lambda kind, parts: kind(tuple(parts)), st.sampled_from([AnyOf, AllOf]), st.lists(inner, max_size=3)
    ),
    max_leaves=6,
)


def instances(scope: str) -> set[str]:
    """Enough texts that a scope stands for to compare two scopes: a pattern stands for every suffix."""
    return {scope[:-1] + suffix for suffix in ("", "a", "b", "*")} if scope[-1:] == "*" else {scope}


def has_naively(scopes: list[str], wanted: str) -> bool:
    def stands_for(held: str, instance: str) -> bool:
        return held == instance or (held[-1:] == "*" and instance[: len(held) - 1] == held[:-1])

    return any(all(stands_for(held, instance) for instance in instances(wanted)) for held in scopes)


def satisfies_naively(scopes: list[str], expression: Any) -> bool:
    if isinstance(expression, str):
        return has_naively(scopes, expression)
    if isinstance(expression, AllOf):
        return all(satisfies_naively(scopes, part) for part in expression.parts)
    return any(satisfies_naively(scopes, part) for part in expression.parts)


@pytest.mark.parametrize(
    ("scopes", "expression", "words"),
    [
        ([], AnyOf(()), "something that no scope gives"),
        ([], "x", "`x`"),
        (["a"], AllOf(("a", "b")), "`b`"),
        (["abc:def"], AnyOf(("abc", "def")), "(`abc` or `def`)"),
        (["xyz"], AllOf((AnyOf((AllOf(("foo",)), AllOf(("bar",)))),)), "(`foo` or `bar`)"),
        (["b*"], AllOf(("bx", "cx", AnyOf(("x", "y")))), "(`cx` and (`x` or `y`))"),
    ],
)
def test_the_missing_scopes_are_described_in_words(
    scopes: list[str], expression: Expression, words: str
) -> None:
    assert missing(scopes, expression, {}) == words


@given(scope_lists, expressions)
def test_satisfaction_agrees_with_a_naive_implementation(scopes: list[str], expression: Expression) -> None:
    assert (missing(scopes, expression, {}) is None) == satisfies_naively(scopes, expression)


def test_a_scope_that_ends_in_two_stars_does_not_cover_the_scope_with_one_star() -> None:
    assert not covers(["x:a**"], ["x:a*"])
    assert not covers(["x:a**"], ["x:a"])
    assert covers(["x:a**"], ["x:a**", "x:a*b", "x:a*b*"])


FOR_EACH = ForEach("one", "list", "x:<one>:<p>")


@pytest.mark.parametrize(
    ("expression", "params", "words"),
    [
        ("a:<p>", {"p": "<q>", "q": "secret"}, "`a:<q>`"),  # a value is never read as a template
        (AllOf((FOR_EACH, "a")), {"list": ("b", "c"), "p": "d"}, "(`x:b:d` and `x:c:d` and `a`)"),
        (AnyOf((FOR_EACH, "a")), {"list": ("b", "c"), "p": "d"}, "(`x:b:d` or `x:c:d` or `a`)"),
        (AllOf((FOR_EACH,)), {"list": ()}, None),
        (AnyOf((FOR_EACH,)), {"list": ()}, "something that no scope gives"),
        ("a:<p>", {"p": ""}, "something that no scope gives"),
        (AllOf(("a", FOR_EACH)), {"list": ("b", ""), "p": "d"}, "something that no scope gives"),
        (AnyOf(("a", AllOf(("b", "c:<p>")))), {"p": ""}, "`a`"),
        (AnyOf((FOR_EACH,)), {"list": ("", "b"), "p": "d"}, "`x:b:d`"),
    ],
)
def test_parameters_fill_the_scopes_and_an_empty_value_satisfies_none(
    expression: Expression, params: dict[str, Any], words: str | None
) -> None:
    assert missing([], expression, params) == words
    held = None if words != "something that no scope gives" else words
    assert missing(["*"], expression, params) == held


def test_for_each_stands_inside_any_of_or_all_of() -> None:
    with pytest.raises(TypeError):
        missing([], FOR_EACH, {})


# From taskcluster-auth's test of its scope resolver; what is passed through is left out of `gained`.
@pytest.mark.parametrize(
    ("roles", "scope", "gained"),
    [
        ({"client-id:root": ["*"]}, "assume:client-id:*", {"*"}),
        (
            {"a": ["A"], "aa": ["AA"], "ab": ["AB"], "a*": ["ASTAR"]},
            "assume:a*",
            {"A", "AA", "AB", "ASTAR"},
        ),
        ({"a*": ["ASTAR"], "ab*": ["ABSTAR"]}, "assume:a", {"ASTAR"}),
        ({"ab*": ["ABSTAR"], "a*": ["ASTAR"]}, "assume:ab", {"ABSTAR", "ASTAR"}),
        ({"a*": ["ASTAR"], "aabc": ["AABC"]}, "assume:aa*", {"ASTAR", "AABC"}),
        ({"a": ["A"], "b": ["B"]}, "a*", {"A", "B"}),
        ({"a": ["A"], "b": ["B"]}, "assume*", {"A", "B"}),
        ({"test": ["assume:*"], "star": ["*"]}, "assume:test", {"assume:*", "*"}),
        (
            {"a": ["A"], "a*b": ["ASTARB"], "a*bc": ["ASTARBC"], "a*": ["ASTAR"]},
            "assume:a*b",
            {"ASTARB", "ASTAR"},
        ),
        ({"a": ["assume:b"], "b": ["assume:c"], "c": ["assume:a", "C"]}, "assume:a", {"C"}),
        ({"a": ["A"]}, "assumed:a", set()),
    ],
)
def test_a_scope_is_expanded_through_the_roles_that_it_assumes(
    roles: dict[str, list[str]], scope: str, gained: set[str]
) -> None:
    assert gained <= set(Roles(roles).expand([scope]))
    assumed = {text for text in Roles(roles).expand([scope]) if not text.startswith("assume:")}
    assert assumed - {scope} == {text for text in gained if not text.startswith("assume:")}


def test_a_chain_of_500_roles_is_expanded() -> None:
    roles = Roles({f"r{n}.": [f"assume:r{n + 1}."] for n in range(500)} | {"r500.": ["special"]})
    assert "special" in roles.expand(["assume:r0."])


@pytest.mark.parametrize(
    ("value", "valid"),
    [("queue:x y~", True), ("", True), ("a\n", False), ("é", False), ("\x7f", False), (1, False)],
)
def test_a_scope_is_printable_ascii(value: object, valid: bool) -> None:
    assert is_scope(value) is valid
