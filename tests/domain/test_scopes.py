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
    reference,
    render,
)

CREATE_TASK = AllOf(
    (
        ForEach("scope", "scopes", "<scope>"),
        ForEach("route", "routes", "queue:route:<route>"),
        AnyOf(
            (
                AllOf(
                    (
                        "queue:scheduler-id:<schedulerId>",
                        AnyOf((ForEach("priority", "priorities", "queue:create-task:<priority>:<p>/<w>"),)),
                    )
                ),
                "queue:create-task:<p>/<w>",
            )
        ),
    )
)
PARAMS = {
    "scopes": ("a", "b<p>"),
    "routes": (),
    "priorities": ("high", "highest"),
    "schedulerId": "s",
    "p": "prov",
    "w": "type",
}

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


def satisfies(scopes: list[str], rendered: Expression) -> bool:
    return missing(scopes, rendered) is None


def satisfies_naively(scopes: list[str], expression: Any) -> bool:
    if isinstance(expression, str):
        return has_naively(scopes, expression)
    if isinstance(expression, AllOf):
        return all(satisfies_naively(scopes, part) for part in expression.parts)
    return any(satisfies_naively(scopes, part) for part in expression.parts)


def test_for_each_adds_alternatives_to_any_of_and_requirements_to_all_of() -> None:
    assert render(CREATE_TASK, PARAMS) == AllOf(
        (
            "a",
            "b<p>",
            AnyOf(
                (
                    AllOf(
                        (
                            "queue:scheduler-id:s",
                            AnyOf(
                                (
                                    "queue:create-task:high:prov/type",
                                    "queue:create-task:highest:prov/type",
                                )
                            ),
                        )
                    ),
                    "queue:create-task:prov/type",
                )
            ),
        )
    )


def test_a_value_is_never_read_as_a_template() -> None:
    assert render("x:<w>", {"w": "<p>", "p": "secret"}) == "x:<p>"


@pytest.mark.parametrize(
    ("expression", "params", "error"),
    [
        ("x:<taskId>", {}, KeyError),
        ("x:<taskId>", {"taskId": ("a",)}, TypeError),
        (AnyOf((ForEach("x", "xs", "<x>"),)), {"xs": "ab"}, TypeError),
        (ForEach("x", "xs", "<x>"), {"xs": ("ab",)}, TypeError),
    ],
)
def test_a_mistake_in_a_declaration_is_an_error(
    expression: Expression, params: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        render(expression, params)


def test_the_reference_has_the_form_of_the_clients_apis_js() -> None:
    # `entries[createTask].scopes` of npm taskcluster-client 11.0.0, shortened
    assert reference(CREATE_TASK) == {
        "AllOf": [
            {"for": "scope", "in": "scopes", "each": "<scope>"},
            {"for": "route", "in": "routes", "each": "queue:route:<route>"},
            {
                "AnyOf": [
                    {
                        "AllOf": [
                            "queue:scheduler-id:<schedulerId>",
                            {
                                "AnyOf": [
                                    {
                                        "for": "priority",
                                        "in": "priorities",
                                        "each": "queue:create-task:<priority>:<p>/<w>",
                                    }
                                ]
                            },
                        ]
                    },
                    "queue:create-task:<p>/<w>",
                ]
            },
        ]
    }


@pytest.mark.parametrize(
    ("scopes", "expression", "words"),
    [
        ([], AnyOf(()), "something that no scope gives"),
        ([], "x", "`x`"),
        (["a"], AllOf(("a", "b")), "`b`"),
        (["abc*"], AllOf(("abc", "ghi")), "`ghi`"),
        (["abc:def"], AnyOf(("abc", "def")), "(`abc` or `def`)"),
        (["a"], "a*", "`a*`"),
        (["xyz"], AllOf((AnyOf((AllOf(("foo",)), AllOf(("bar",)))),)), "(`foo` or `bar`)"),
        (["b*"], AllOf(("bx", "cx", AnyOf(("x", "y")))), "(`cx` and (`x` or `y`))"),
    ],
)
def test_the_missing_scopes_are_described_in_words(
    scopes: list[str], expression: Expression, words: str
) -> None:
    assert not satisfies(scopes, expression)
    assert missing(scopes, expression) == words


@given(scope_lists, expressions)
def test_satisfaction_agrees_with_a_naive_implementation(scopes: list[str], expression: Expression) -> None:
    assert satisfies(scopes, expression) == satisfies_naively(scopes, expression)


def test_a_scope_that_ends_in_two_stars_does_not_cover_the_scope_with_one_star() -> None:
    assert not covers(["x:a**"], ["x:a*"])
    assert not satisfies(["x:a**"], "x:a")
    assert covers(["x:a**"], ["x:a**", "x:a*b", "x:a*b*"])


# From taskcluster-auth's test of its scope resolver; what is passed through is left out of `gained`.
@pytest.mark.parametrize(
    ("roles", "scope", "gained"),
    [
        ({"client-id:root": ["*"]}, "assume:client-id:root", {"*"}),
        ({"client-id:root": ["*"]}, "assume:client-id:*", {"*"}),
        (
            {"a": ["A"], "aa": ["AA"], "ab": ["AB"], "a*": ["ASTAR"]},
            "assume:a*",
            {"A", "AA", "AB", "ASTAR"},
        ),
        ({"a": ["A"], "ab": ["AB"], "abc": ["ABC"]}, "assume:ab*", {"AB", "ABC"}),
        ({"a*": ["ASTAR"], "ab*": ["ABSTAR"]}, "assume:a", {"ASTAR"}),
        ({"ab*": ["ABSTAR"], "a*": ["ASTAR"]}, "assume:ab", {"ABSTAR", "ASTAR"}),
        ({"*": ["STAR"], "a*": ["ASTAR"]}, "assume:a", {"STAR", "ASTAR"}),
        ({"a*": ["ASTAR"], "aabc": ["AABC"]}, "assume:aa*", {"ASTAR", "AABC"}),
        ({"a": ["A"], "b": ["B"]}, "*", {"A", "B"}),
        ({"a": ["A"], "b": ["B"]}, "a*", {"A", "B"}),
        ({"a": ["A"], "b": ["B"]}, "assume*", {"A", "B"}),
        ({"a": ["A"], "ab": ["AB"], "abc": ["ABC"]}, "assume:ab", {"AB"}),
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


def test_scopes_that_assume_no_role_are_kept_without_duplicates() -> None:
    assert Roles({"a": ["A"]}).expand(["x", "y*", "x"]) == ("x", "y*")


def test_a_chain_of_500_roles_is_expanded() -> None:
    roles = Roles({f"r{n}.": [f"assume:r{n + 1}."] for n in range(500)} | {"r500.": ["special"]})
    assert "special" in roles.expand(["assume:r0."])


@pytest.mark.parametrize(
    ("value", "valid"),
    [("queue:x y~", True), ("", True), ("a\n", False), ("é", False), ("\x7f", False), (1, False)],
)
def test_a_scope_is_printable_ascii(value: object, valid: bool) -> None:
    assert is_scope(value) is valid


@pytest.mark.parametrize(
    ("expression", "rendered"),
    [
        ("assume:worker-id:<worker>", AnyOf(())),
        ("<worker>", AnyOf(())),
        (AllOf(("a", "assume:worker-id:<worker>")), AnyOf(())),
        (AnyOf(("a", "assume:worker-id:<worker>")), AnyOf(("a",))),
        (AnyOf(("a:<p>", AllOf(("b", "c:<worker>")))), AnyOf(("a:prov",))),
        (AllOf(("a", AnyOf(("b", "c:<worker>")))), AllOf(("a", AnyOf(("b",))))),
        (AllOf((ForEach("one", "workers", "x:<one>"),)), AnyOf(())),
        (AnyOf((ForEach("one", "workers", "x:<one>"),)), AnyOf(("x:w",))),
    ],
)
def test_a_scope_with_an_empty_value_is_never_satisfied(expression: Expression, rendered: Expression) -> None:
    params = {**PARAMS, "worker": "", "workers": ("", "w")}
    assert render(expression, params) == rendered
    assert (missing(["*"], rendered) is None) == (rendered != AnyOf(()))


def test_an_expression_that_is_not_rendered_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        missing(["*"], AllOf((ForEach("x", "xs", "<x>"),)))
