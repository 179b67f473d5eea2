import re

import pytest

from legacy_queue.domain.ids import IDENTIFIER, RUN_ID, TASK_ID, slugid
from tests.clients.python import taskcluster


def test_a_new_task_id_is_valid_and_does_not_begin_with_a_dash() -> None:
    for _ in range(500):
        made = slugid()
        assert re.fullmatch(TASK_ID, made)
        assert made[0] != "-"


def test_new_task_ids_are_unique() -> None:
    assert len({slugid() for _ in range(1000)}) == 1000


def test_a_task_id_of_the_python_client_is_valid() -> None:
    for _ in range(500):
        assert re.fullmatch(TASK_ID, taskcluster.slugId().decode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eWIgwMgxSfeXQ36iBbOxi",
        "eWIgwMgxSfeXQ36iBbOxiQQ",
        "eWIgwMgxAfeXQ36iBbOxiQ",
        "b4cf65f1-1f38-4c64-8361-13552fc7a33a",
    ],
)
def test_a_text_of_another_form_is_not_a_task_id(text: str) -> None:
    assert not re.fullmatch(TASK_ID, text)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("0", True),
        ("9", True),
        ("50", True),
        ("1000", True),
        ("1001", False),
        ("01", False),
        ("", False),
        ("-1", False),
    ],
)
def test_a_run_id_is_0_to_1000_in_decimal(text: str, is_valid: bool) -> None:
    assert bool(re.fullmatch(RUN_ID, text)) is is_valid


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [("a", True), ("worker-Type_1", True), ("x" * 38, True), ("x" * 39, False), ("", False), ("a/b", False)],
)
def test_an_identifier_has_1_to_38_plain_characters(text: str, is_valid: bool) -> None:
    assert bool(re.fullmatch(IDENTIFIER, text)) is is_valid
