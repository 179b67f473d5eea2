"""Scope expressions and roles. The examples are from taskcluster-lib-scopes and taskcluster-auth."""

from typing import Any

import pytest

from legacy_queue.domain.scopes import (
    AllOf,
    AnyOf,
    Expression,
    ForEach,
    Roles,
    covers,
    is_scope,
    may_satisfy,
    missing,
    templates,
)


@pytest.mark.parametrize(
    ("held", "covered", "others"),
    [
        ("", [""], ["a", "*"]),
        ("a", ["a"], ["", "b", "ab", "a*"]),
        ("a*", ["a", "a*", "ab", "ab*", "a**"], ["", "*", "b", "ba"]),
        ("*", ["", "*", "a", "a*"], []),
        ("a*b", ["a*b"], ["ab", "acb", "a*"]),  # a star in the middle is an ordinary character
        ("x:a**", ["x:a**", "x:a*b", "x:a*b*"], ["x:a", "x:a*", "x:ab"]),
    ],
)
def test_a_scope_covers_itself_and_a_pattern_covers_scopes_with_its_prefix(
    held: str, covered: list[str], others: list[str]
) -> None:
    assert covers([held, "z"], [*covered, "z"])
    assert [other for other in others if covers([held, "z"], [other, "z"])] == []


FOR_EACH = ForEach("one", "list", "x:<one>:<p>")
NONE = "something that no scope gives"


@pytest.mark.parametrize(
    ("held", "expression", "params", "words"),
    [
        ([], AnyOf(()), {}, NONE),
        ([], "x", {}, "`x`"),
        (["a"], AllOf(("a", "b")), {}, "`b`"),
        (["abc:def"], AnyOf(("abc", "def")), {}, "(`abc` or `def`)"),
        (["b*"], AllOf(("bx", "cx", AnyOf(("x", "y")))), {}, "(`cx` and (`x` or `y`))"),
        # a parameter's value is never read as a template
        ([], "a:<p>", {"p": "<q>", "q": "secret"}, "`a:<q>`"),
        ([], AllOf((FOR_EACH, "a")), {"list": ("b", "c"), "p": "d"}, "(`x:b:d` and `x:c:d` and `a`)"),
        ([], AnyOf((FOR_EACH, "a")), {"list": ("b", "c"), "p": "d"}, "(`x:b:d` or `x:c:d` or `a`)"),
        ([], AnyOf((FOR_EACH,)), {"list": ()}, NONE),
        ([], "a:<p>", {"p": ""}, NONE),
        ([], AllOf(("a", FOR_EACH)), {"list": ("b", ""), "p": "d"}, NONE),
        ([], AnyOf(("a", AllOf(("b", "c:<p>")))), {"p": ""}, "`a`"),
        ([], AnyOf((FOR_EACH,)), {"list": ("", "b"), "p": "d"}, "`x:b:d`"),
    ],
)
def test_missing_scopes_are_described_in_words_and_an_empty_parameter_satisfies_no_scope(
    held: list[str], expression: Expression, params: dict[str, Any], words: str
) -> None:
    assert missing(held, expression, params) == words
    assert missing(["*"], expression, params) == (NONE if words == NONE else None)


def test_a_scope_can_satisfy_a_template_for_some_values_of_its_parameters() -> None:
    scopes = ("*", "a:*", "a:b:*", "a:b:c", "a:b:c/*", "b:*", "a:b", "a:bc:*")
    assert [scope for scope in scopes if may_satisfy(["x", scope], "a:b:<p>/<q>")] == [*scopes[:5]]


def test_an_expression_lists_its_scope_templates() -> None:
    assert templates(AllOf(("a", AnyOf(("b:<p>", FOR_EACH))))) == ("a", "b:<p>", "x:<one>:<p>")
    with pytest.raises(TypeError):  # AnyOf and AllOf hold scopes in a tuple, not as a string
        missing([], FOR_EACH, {})


# From taskcluster-auth's test of its scope resolver. `gained` leaves out the scopes that were given.
@pytest.mark.parametrize(
    ("roles", "scope", "gained"),
    [
        ({"client-id:root": ["*"]}, "assume:client-id:*", {"*"}),
        ({"a": ["A"], "aa": ["AA"], "a*": ["ASTAR"]}, "assume:a*", {"A", "AA", "ASTAR"}),
        ({"a*": ["ASTAR"], "ab*": ["ABSTAR"]}, "assume:a", {"ASTAR"}),
        ({"a*": ["ASTAR"], "aabc": ["AABC"]}, "assume:aa*", {"ASTAR", "AABC"}),
        ({"a": ["A"], "b": ["B"]}, "a*", {"A", "B"}),
        ({"test": ["assume:*"], "star": ["*"]}, "assume:test", {"assume:*", "*"}),
        ({"a": ["A"], "a*b": ["AB"], "a*bc": ["ABC"], "a*": ["ASTAR"]}, "assume:a*b", {"AB", "ASTAR"}),
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


def test_a_scope_is_printable_ascii() -> None:
    assert [it for it in ("queue:x y~", "", "a\n", "é", "\x7f", 1) if is_scope(it)] == ["queue:x y~", ""]
