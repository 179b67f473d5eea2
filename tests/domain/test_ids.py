import re

from legacy_queue.domain.ids import IDENTIFIER, RUN_ID, TASK_ID, slugid
from tests.clients.python import taskcluster


def test_a_new_task_id_is_valid_and_does_not_begin_with_a_dash() -> None:
    for _ in range(500):
        assert re.fullmatch(TASK_ID, taskcluster.slugId().decode())
        made = slugid()
        assert re.fullmatch(TASK_ID, made)
        assert made[0] != "-"


def test_only_an_identifier_of_the_documented_form_is_valid() -> None:
    for pattern, valid, invalid in (
        (TASK_ID, ["eWIgwMgxSfeXQ36iBbOxiQ"], ["", "eWIgwMgxSfeXQ36iBbOxiQQ", "eWIgwMgxAfeXQ36iBbOxiQ"]),
        (RUN_ID, ["0", "9", "50", "1000"], ["1001", "01", "", "-1"]),
        (IDENTIFIER, ["a", "worker-Type_1", "x" * 38], ["x" * 39, "", "a/b"]),
    ):
        assert [text for text in valid + invalid if re.fullmatch(pattern, text)] == valid
