"""How fields of a task definition depend on each other: docs/explanation/http-contract.md#task-definition."""

import re
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.definition import MAX_DEFINITION, MAX_SCOPES
from legacy_queue.domain.errors import InputError, InputTooLarge
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.times import format_time
from tests.domain.sample_tasks import DAY, MINUTE, MS, NOW, TASK_ID, definition, task_body

MOST = 5 * DAY + 15 * MINUTE


def at(difference: timedelta) -> str:
    return format_time(NOW + difference)


def refusal(**changes: Any) -> InputError:
    with pytest.raises(InputError) as error:
        definition(**changes)
    return error.value


def test_fields_that_are_left_out_have_defaults() -> None:
    assert definition().wire == {
        **task_body(),
        "schedulerId": "-",
        "taskGroupId": TASK_ID,
        "dependencies": [],
        "requires": "all-completed",
        "routes": [],
        "priority": "lowest",
        "retries": 5,
        "expires": at(366 * DAY),
        "scopes": [],
        "tags": {},
        "extra": {},
    }


def test_both_ways_of_naming_the_pool_give_the_same_definition() -> None:
    both = {"taskQueueId": "provisioner/worker-Type_1"}
    for changes in (
        both,
        both | {"provisionerId": None},
        both | dict.fromkeys(("provisionerId", "workerType")),
    ):
        assert definition(**changes) == definition()


def test_a_definition_that_names_two_pools_or_none_is_refused() -> None:
    assert "expected the same pool" in str(refusal(taskQueueId="Provisioner/worker-Type_1"))
    for missing in ("provisionerId", "workerType"):
        assert "names no pool" in str(refusal(**{missing: None}))


def test_a_task_without_a_project_id_has_the_project_id_none() -> None:
    assert definition(projectId="none") == definition()
    assert definition().to_wire()["projectId"] == "none"
    assert definition(projectId="a/project").to_wire()["projectId"] == "a/project"


def test_two_forms_of_the_same_values_are_the_same_definition() -> None:
    assert definition(priority="normal") == definition(priority="lowest") == definition()
    assert definition(deadline=at(DAY).replace("Z", "402+00:00")) == definition()


@pytest.mark.parametrize(
    ("accepted", "refused", "rule"),
    [
        ({"created": 15 * MINUTE}, {"created": 15 * MINUTE + MS}, "created .* within 15 minutes of now"),
        ({"created": -15 * MINUTE}, {"created": -15 * MINUTE - MS}, "created .* within 15 minutes of now"),
        ({"created": MS, "deadline": MS}, {"created": MINUTE, "deadline": MS}, "deadline .* before created"),
        ({"created": -MS, "deadline": MS}, {"created": -MS, "deadline": 0 * MS}, "deadline .* in the future"),
        ({"deadline": MOST}, {"deadline": MOST + MS}, "deadline .* at most 5 days away"),
        ({"expires": DAY}, {"expires": DAY - MS}, "expires .* not before deadline"),
    ],
)
def test_a_time_out_of_its_range_is_refused(
    accepted: dict[str, timedelta], refused: dict[str, timedelta], rule: str
) -> None:
    definition(**{name: at(difference) for name, difference in accepted.items()})
    error = refusal(**{name: at(difference) for name, difference in refused.items()})
    assert re.match(rule, str(error))
    assert error.details["now"] == at(0 * MS)
    assert "out of range" in str(refusal(deadline="9999-06-01T00:00:00Z"))


def test_a_scope_that_ends_in_two_stars_is_refused() -> None:
    definition(scopes=["a:*", "**a"])
    assert "'a:**'" in str(refusal(scopes=["fine", "a:**"]))


def test_a_definition_that_does_not_fit_into_a_row_is_too_large() -> None:
    empty = len(to_json(definition(payload={"long": ""}).wire))
    definition(payload={"long": "x" * (MAX_DEFINITION - empty)})
    with pytest.raises(InputTooLarge, match=f"{MAX_DEFINITION + 1} bytes"):
        definition(payload={"long": "x" * (MAX_DEFINITION - empty + 1)})


def test_scopes_that_do_not_fit_into_a_certificates_header_are_too_large() -> None:
    fits = ["x" * 1000] * (MAX_SCOPES // 1004)
    definition(scopes=fits)
    with pytest.raises(InputTooLarge, match=f"at most {MAX_SCOPES}"):
        definition(scopes=[*fits, "x" * 1000])
